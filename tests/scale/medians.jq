# SPDX-License-Identifier: BSD-2-Clause-Patent
# fold: the median of each number in a group of objects; other values as in the first.
def middle: sort | .[(length - 1) / 2 | floor];
def fold: .[0] as $first
    | if $first | type == "object" then
          . as $all | $first | with_entries(.key as $key | .value = ([$all[][$key]] | fold))
      elif $first | type == "number" then middle
      else $first end;

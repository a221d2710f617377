# SPDX-License-Identifier: BSD-2-Clause-Patent
# What scripts/bench says below its table. Input: the array of rows that summary.jq judged; $machine:
# [the machine's description].
def two: if . == null then "?" else . * 100 | round / 100 | tostring end;
def lost: .verdict == "MISSED" or .verdict == "FAILED";
def count(filter): map(select(filter)) | length | tostring;
([.[].spread | select(. != null)] | sort) as $spreads
| "The noise of this run: the raw limit varied by a factor of \($spreads[$spreads | length / 2 | floor] | two) "
  + "in the median row, \($spreads[-1:][0] | two) in the worst. The load of the machine was "
  + $machine[0].load_at_start + " before it"
  + (if ($machine[0].load_at_start | split(" ")[0] | tonumber) > 0.5
     then ": other programs ran beside it, so trust ratios and verdicts more than figures, and neither much."
     else "." end),
  (.[] | select(.verdict == "missed, explained") | "explained: \(.id): \(.explained)"),
  (.[] | select(.verdict == "met" and .explained != null)
     | "explained, and met in this run: \(.id)"),
  (.[] | select(lost) | "\(.verdict): \(.id): "
     + (if .verdict == "FAILED" then (.failed | map(.failed) | join("; ")) else (.missed | join(", ")) end)),
  count(.verdict == "met") + " met, " + count(.verdict == "missed, explained")
    + " missed and explained, " + count(lost) + " missed"

# SPDX-License-Identifier: BSD-2-Clause-Patent
# The text of scripts/bench below its table. Input: the array of rows that summary.jq judged; $machine:
# [the machine's description].
def two: if . == null then "?" else . * 100 | round / 100 | tostring end;
def lost: .verdict == "MISSED" or .verdict == "FAILED";
def names: {raw: "the raw limit", system: "raw as the system has it", openmpi: "Open MPI", ucx: "UCX", zeromq: "ZeroMQ"};
def count(filter): map(select(filter)) | length | tostring;
([.[].spread | select(. != null)] | sort) as $spreads
| "The noise of this run: the raw limit varied by a factor of \($spreads[$spreads | length / 2 | floor] | two) "
  + "in the median row, \($spreads[-1:][0] | two) in the worst. The load of the machine was "
  + ($machine[0].load_at_start | map(tostring) | join(" ")) + " before it"
  + (if $machine[0].load_at_start[0] > 0.5
     then ": other programs ran beside it, so trust ratios and verdicts more than figures, and neither much."
     else "." end),
  (.[] | select(.verdict == "missed, explained") | "explained: \(.id): \(.explained)"),
  (.[] | select(.verdict == "met" and .explained != null)
     | "explained, and met in this run: \(.id)"),
  (.[] | .id as $id | .skipped[] | "not compared: \($id): \(names[.subject] // .subject): \(.skipped)"),
  (.[] | .id as $id | select(.verdict != "FAILED"), (select(.verdict == "FAILED") | .failed |= map(select(.subject != "rdmux")))
     | .failed[] | "failed to run: \($id): \(names[.subject] // .subject): \(.failed)"),
  (.[] | select(.verdict == "not judged") | "not judged: \(.id): the raw limit could not be measured"),
  (.[] | select(lost) | "\(.verdict): \(.id): "
     + (if .verdict == "FAILED" then (.failed | map(select(.subject == "rdmux").failed) | join("; ")) else (.missed | join(", ")) end)),
  count(.verdict == "met") + " met, " + count(.verdict == "missed, explained")
    + " missed and explained, " + count(lost) + " missed"
    + (if any(.verdict == "not judged") then ", " + count(.verdict == "not judged") + " not judged" else "" end)

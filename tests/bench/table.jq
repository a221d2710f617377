# SPDX-License-Identifier: BSD-2-Clause-Patent
# Formats the rows that summary.jq judged as a table in Markdown. Input: the array of rows.
def three: if . == null then "" elif . == 0 then "0" else
  (fabs | log10 | floor) as $power | (pow(10; 2 - $power)) as $scale
  | ((. * $scale | round) / $scale) | tostring end;
def amount($unit):
  if . == null then ""
  elif $unit == "bytes/s" then "\(. / 1e9 | three) GB/s"
  elif $unit == "bytes" then "\(. / 1024 | three) KiB"
  elif $unit == "messages/s" or $unit == "operations/s" then "\(. / 1e6 | three) M/s"
  elif $unit == "1/s" then "\(round)/s"
  else "\(three) \($unit)" end;
def two: . * 100 | round / 100 | tostring;
def line: "| " + join(" | ") + " |";
["group", "what", "goal", "raw", "spread", "rdmux", "of raw", "raw as the system has it", "libfabric", "Open MPI", "UCX", "ZeroMQ", "nng", "verdict"] as $heads
| ($heads | line), ($heads | map("---") | line),
  (.[] | . as $row | [
    .group, .what, (if .goal == "" then "none" else .goal end),
    (if .medians.raw == null then "none" else .medians.raw | amount($row.unit) end),
    (if .spread != null then .spread | two elif .ours_spread != null then "rdmux \(.ours_spread | two)" else "" end),
    (.medians.rdmux | amount($row.unit)), (.ratios.raw | three),
    (.medians.system | amount($row.unit)),
    (.medians.libfabric | amount($row.unit)), (.medians.openmpi | amount($row.unit)), (.medians.ucx | amount($row.unit)),
    (.medians.zeromq | amount($row.unit)), (.medians.nng | amount($row.unit)),
    .verdict] | line),
  "", "CPU time of both sides together:", "",
  (["group", "what", "in", "raw", "rdmux", "libfabric", "UCX", "ZeroMQ", "nng"] | line), ([range(9)] | map("---") | line),
  (.[] | select((.cpu.rdmux // 0) > 0 and (.group == "tcp" or .group == "shm")) | [
    .group, .what, .cpu_unit, (.cpu.raw | three), (.cpu.rdmux | three), (.cpu.libfabric | three),
    (.cpu.ucx | three), (.cpu.zeromq | three), (.cpu.nng | three)] | line)

# SPDX-License-Identifier: BSD-2-Clause-Patent
# Judges a run of scripts/bench. Input: {"rows": rows.json's, "explained": {ID: {"against": {SUBJECT: BOUND},
# "because": REASON}}, "samples": [{"id", "subject", "value", "cpu_seconds", "operations"}, or {"id", "subject",
# "failed": TEXT}, or with "skipped"]}. A bound is the last ratio to the subject that the reason covers; that of "itself",
# for an absolute goal, the last value. Output: one object per row, with medians, spread, ratios and the verdict.

def median: sort | if length == 0 then null else .[(length - 1) / 2 | floor] end;
def spread: if length == 0 or min <= 0 then null else max / min end;

# The limit of a goal with this base: {"limit", "text"}; null if its subject was not measured.
def allowed($goal; $base; $spread):
  if $goal.of and $base == null then null
    elif $goal.reach then
      (if $base >= $goal.reach then $goal.least else $goal.else * $base end) as $limit
      | {limit: $limit, least: true,
         text: (if $base >= $goal.reach then "\($goal.least / 1e6) M" else "\($goal.else) x \($goal.of)" end)}
    elif $goal.most != null then
      {limit: (if $goal.of then [$goal.most * $base, (if $goal.or_plus then $base + $goal.or_plus else 0 end)] | max
               else $goal.most end),
       least: false, text: ("<= \($goal.most)" + (if $goal.of then " x \($goal.of)" else "" end)
                            + (if $goal.or_plus then " or + \($goal.or_plus)" else "" end))}
    else
      {limit: ((if $goal.of then $goal.least * $base else $goal.least end)
               / (if $goal.spread then ($spread // 1) else 1 end)),
       least: true, text: (">= \($goal.least)" + (if $goal.of then " x \($goal.of)" else "" end)
                           + (if $goal.spread then " less spread" else "" end))}
    end;

. as $run
| .rows[] as $row
| [$run.samples[] | select(.id == $row.id)] as $samples
| select($samples | length > 0)
| ([$samples[] | select(.value != null)] | group_by(.subject)
   | map({key: .[0].subject, value: .}) | from_entries) as $by_subject
| ($by_subject | map_values([.[].value] | median)) as $medians
| ([($by_subject.raw // [])[].value] | spread) as $spread
| ($by_subject | map_values(
     [.[] | select((.operations // 0) > 0 and .cpu_seconds != null)
          | .cpu_seconds / .operations * (if $row.unit == "bytes/s" then 1073741824 / .size else 1e6 end)]
     | median)) as $cpu
# Goals and ratios compare within a round, as other load, or the processors that a hypervisor gives us,
# change from round to round. Then the median of the rounds counts.
| def in_rounds($subject): [($by_subject.rdmux // [])[] as $ours
    | ($by_subject[$subject] // [])[] | select(.round == $ours.round) | {ours: $ours.value, base: .value}];
  def three: . * 1000 | round / 1000;
  ($medians | del(.rdmux) | with_entries(select(.value != null and .value > 0))
   | with_entries(.value = ([in_rounds(.key)[] | .ours / .base] | median))) as $ratios
| [$row.goals[] | . as $goal | allowed($goal; $medians[$goal.of // ""]; $spread) | select(. != null)
   | . + {of: ($goal.of // "itself"), met: (
       .least as $least
       | (if $goal.of then [in_rounds($goal.of)[] | .ours / allowed($goal; .base; $spread).limit] | median
          elif $medians.rdmux == null then null
          elif .limit == 0 then (if $medians.rdmux == 0 then 1 else 2 end)
          else $medians.rdmux / .limit end)
       | . != null and (if $least then . >= 1 else . <= 1 end))}] as $goals
| ($goals | map(select(.met | not) | .bound = $run.explained[$row.id].against[.of]
   | .is = (if .of == "itself" then $medians.rdmux else $ratios[.of] end))) as $missed
| ($missed | all(.bound != null and .is != null
                 and (if .least then .is >= .bound else .is <= .bound end))) as $is_explained
| ([$row.goals[].of | select(. == "raw" and $medians.raw == null)] | unique) as $unjudged
| {id: $row.id, group: $row.group, what: $row.what, unit: $row.unit,
   goal: ($goals | map(.text) | join(", ")),
   medians: $medians, spread: $spread,
   ours_spread: ([($by_subject.rdmux // [])[].value] | spread),
   samples: ($by_subject | map_values(length)),
   ratios: $ratios,
   cpu: $cpu, cpu_unit: (if $row.unit == "bytes/s" then "s/GiB" else "s/million" end),
   missed: ($missed | map(.text + (if .bound != null and .is != null
       then ": it is \(.is | three), and the explanation ends at \(.bound)" else "" end))),
   failed: ([$samples[] | select(.failed) | {subject, failed}] | unique),
   skipped: ([$samples[] | select(.skipped) | {subject, skipped}] | unique),
   explained: ($run.explained[$row.id].because // null),
   verdict: (if $medians.rdmux == null then "FAILED"
             elif $is_explained | not then "MISSED"
             elif ($unjudged | length) > 0 then "not judged"
             elif ($goals | length) == 0 then "shown"
             elif ($missed | length) == 0 then "met"
             else "missed, explained" end)}

# SPDX-License-Identifier: BSD-2-Clause-Patent
# The results of tests/scale/measure as tables in Markdown.
def row: "| " + (map(tostring) | join(" | ")) + " |";
def head: row + "\n|" + (map("---") | join("|")) + "|";
def two: . * 100 | round / 100;
def kib: . / 1024 | . * 10 | round / 10 | "\(.) KiB";
def mib: . / 1048576 | round | "\(.) MiB";
def sides($member): [.connector[$member], .acceptor[$member]] | max;

["What an endpoint takes on the side that takes more", "",
 (["path", "endpoints", "private memory", "shared memory", "allocated by the library", "descriptors",
   "mappings"] | head),
 (.costs[] | [.paths, .endpoints, (sides("resident_bytes") | kib), (sides("shared_bytes") | kib),
              (sides("library_bytes") | kib), (sides("descriptors") | two),
              (sides("mappings") | two)] | row),
 "", "What it takes of the adapter", "",
 (["path", "endpoints", "queue pairs", "send entries", "receive entries", "completion entries", "regions",
   "bytes in regions"] | head),
 (.costs[] | select(.adapter) | [.paths, .endpoints, (.adapter.queue_pairs | two), (.adapter.send_entries | two),
   (.adapter.receive_entries | two), (.adapter.completion_entries | two), (.adapter.regions | two),
   (.adapter.region_bytes | round)] | row),
 "", "Time", "",
 (["path", "endpoints", "set-ups a second", "last tenth / first", "closing, each", "last tenth / first",
   "empty poll beside all", "without any"] | head),
 (.costs[] | [.paths, .endpoints, .set_up.per_second, .set_up.last_tenth_over_first,
   "\(.close.seconds / .endpoints * 1e6 | two) us", .close.last_tenth_over_first,
   "\(.connector.poll_ns.all) ns", "\(.connector.poll_ns.none) ns"] | row),
 "", "Idle, both sides together", "",
 (["path", "endpoints", "peers", "packets a second", "bytes a second", "requests of the adapter a second",
   "processors"] | head),
 (.costs[], .peers[] | [.paths, .endpoints, .peers, (.idle.packets_per_second | two), .idle.bytes_per_second,
   (if .adapter then .adapter.idle_requests_per_second | two else "" end), .idle.processor_share] | row),
 "", "Storms", "",
 (["path", "processes", "pairs", "under way at most", "connected after", "ended after", "processor time", "memory",
   "of the kernel", "descriptors of one", "failed set-ups", "right"] | head),
 (.storms[] | [.paths, .processes, .pairs, .most_under_way, "\(.connect_seconds | two) s", "\(.end_seconds | two) s",
   "\(.processor_seconds | two) s", (.pss_bytes | mib), (.kernel_bytes | mib), .descriptors_of_one, .failed_setups,
   .right] | row),
 (.storms[] | .paths as $paths | .most_under_way as $most | .reasons[]
  | "\($paths), \($most) under way: \(.count) x \(.where): \(.status): \(.text)")] | .[]

# rdmux beside other libraries: docs/pictures/beside.svg is made of the figures kept in docs/performance by
# scripts/docs pictures, which sets `figures` and `svg`.
set terminal svg size 760,260 font "Helvetica,12" background "white"
set output svg
set style data histograms
set style histogram clustered gap 1
set style fill solid 1.0 noborder
set boxwidth 0.9
set yrange [0:*]
set grid ytics lc rgb "#dddddd"
set border 3 lc rgb "#888888"
set tics nomirror
set datafile missing "-"
set key outside right top reverse Left samplen 1.5
set linetype 1 lc rgb "#b9c3d0"
set linetype 2 lc rgb "#1f5fa8"
set linetype 3 lc rgb "#e0a43a"
set linetype 4 lc rgb "#8c9f6b"
rows(prefix) = sprintf("< grep -e '%s' %s | sed 's/^tcp[^ ]*/tcp/; s/^shm[^ ]*/shm/'", prefix, figures)
set multiplot
set size 0.42,1
set origin 0,0
unset key
set title "8 bytes, half a round trip\nus, less is better"
plot for [i = 2:5] rows("-latency-8 ") using i:xtic(1)
set size 0.58,1
set origin 0.42,0
set key
set title "1 MiB; tcp: send, shm: write\nGB/s, more is better"
plot rows("-1m ") using 2:xtic(1) title "no library", "" using 3 title "rdmux", \
     "" using 4 title "libfabric", "" using 5 title "UCX"
unset multiplot

/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Draws figures by size as SVG: a panel for each test, in it a curve for each path. A PNG is made
 * from the SVG by another program, or drawn by gnuplot.
 */
#include "perf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WIDTH = 760,
    LEFT = 74,
    RIGHT = 74,
    PANEL = 380, /* height, with title, legend and axis */
    TOP = 62,    /* of a panel, above its axes */
    BOTTOM = 50,
    PLOT_WIDTH = WIDTH - LEFT - RIGHT,
    PLOT_HEIGHT = PANEL - TOP - BOTTOM,
    CURVES_MAX = 32,
    TICKS_MAX = 64,
    LABEL_MAX = 2 * RDMUX_NAME_MAX + 16,
    X_LABELS_MAX = 13,
};

/* Okabe and Ito: told apart by readers who see few colours, too. */
static const char *const colours[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                       "#e69f00", "#56b4e9", "#000000", "#8c6d31" };

struct curve {
    char label[LABEL_MAX];
};

/* What a plot is of: the figures of one test are a panel. */
struct plot {
    const struct perf_figures *figures;
    size_t count;
    const char *const *labels;
    struct curve curves[CURVES_MAX]; /* of all panels, so that a path has one colour */
    size_t curve_count;
    unsigned tests[PERF_TEST_COUNT];
    size_t panel_count;
};

/* A panel's axes. */
struct axes {
    double x_first; /* log2 of the sizes */
    double x_last;
    double y_first;
    double y_last;
    bool y_log;
    double ticks[TICKS_MAX];
    size_t tick_count;
    double top; /* of the panel in the picture */
};

/* --------------------------------------------------------------------------------------- values */

static void label_of(const struct plot *plot, size_t index, char out[LABEL_MAX])
{
    const struct perf_figures *figures = &plot->figures[index];
    bool by_device = false; /* another curve is of the same provider */
    for (size_t i = 0; i < plot->count; i++) {
        by_device = by_device || (strcmp(plot->figures[i].provider, figures->provider) == 0 &&
                                  strcmp(plot->figures[i].device, figures->device) != 0);
    }
    snprintf(out, LABEL_MAX, "%s%s%s%s%s", plot->labels != NULL ? plot->labels[index] : "",
             plot->labels != NULL ? ": " : "", figures->provider, by_device ? " " : "",
             by_device ? figures->device : "");
}

static size_t curve_of(struct plot *plot, size_t index)
{
    char label[LABEL_MAX];
    label_of(plot, index, label);
    size_t at = 0;
    while (at < plot->curve_count && strcmp(plot->curves[at].label, label) != 0) {
        at++;
    }
    if (at == plot->curve_count && at < CURVES_MAX) {
        memcpy(plot->curves[plot->curve_count++].label, label, LABEL_MAX);
    }
    return at;
}

/* The value drawn, in the unit of the axis. */
static double value_of(const struct perf_figures *figures)
{
    switch ((enum perf_test)figures->test) {
    case PERF_BANDWIDTH:
        return perf_main_figure(figures) / 1e9;
    case PERF_RATE:
        return perf_main_figure(figures) / 1e6;
    case PERF_LATENCY:
    case PERF_TEST_COUNT:
        break;
    }
    return perf_main_figure(figures);
}

static const char *unit_of(unsigned test)
{
    static const char *const units[] = {
        [PERF_LATENCY] = "microseconds", [PERF_BANDWIDTH] = "GB/s", [PERF_RATE] = "million messages/s"
    };
    return units[test];
}

/* A size of 0 is drawn where 1/2 would be. */
static double x_of(const struct perf_figures *figures)
{
    return figures->size == 0 ? -1.0 : log2((double)figures->size);
}

static void collect(struct plot *plot)
{
    for (size_t i = 0; i < plot->count; i++) {
        curve_of(plot, i);
        bool known = false;
        for (size_t k = 0; k < plot->panel_count; k++) {
            known = known || plot->tests[k] == plot->figures[i].test;
        }
        if (!known) {
            plot->tests[plot->panel_count++] = plot->figures[i].test;
        }
    }
}

/* ----------------------------------------------------------------------------------------- axes */

/* Returns 1, 2 or 5 times a power of ten, the smallest that is not below value. */
static double round_up(double value)
{
    double power = pow(10.0, floor(log10(value)));
    static const double steps[] = { 1, 2, 5, 10 };
    for (size_t i = 0; i < TOOL_COUNT_OF(steps); i++) {
        if (steps[i] * power >= value * (1 - 1e-9)) {
            return steps[i] * power;
        }
    }
    return 10 * power;
}

static void linear_ticks(struct axes *axes, double max)
{
    double step = round_up(max / 6);
    axes->y_first = 0;
    axes->y_last = step * ceil(max / step - 1e-9);
    for (double at = 0; at <= axes->y_last + step / 2 && axes->tick_count < TICKS_MAX; at += step) {
        axes->ticks[axes->tick_count++] = at;
    }
}

static void log_ticks(struct axes *axes, double min, double max)
{
    static const double steps[] = { 1, 2, 5 };
    double first = pow(10.0, floor(log10(min)));
    bool few = log10(max / min) > 3;
    axes->y_log = true;
    axes->y_first = first;
    for (double power = first; axes->tick_count + 3 < TICKS_MAX; power *= 10) {
        for (size_t i = 0; i < TOOL_COUNT_OF(steps); i++) {
            double tick = power * steps[i];
            if (tick * (1 + 1e-9) < min && tick * (i == 2 ? 2 : steps[i + 1] / steps[i]) <= min) {
                axes->y_first = tick; /* nothing is drawn below the next one */
                axes->tick_count = 0;
            }
            if (!few || i == 0) {
                axes->ticks[axes->tick_count++] = tick;
            }
            if (tick >= max * (1 - 1e-9)) {
                axes->y_last = tick;
                return;
            }
        }
    }
    axes->y_last = max;
}

static struct axes axes_of(const struct plot *plot, unsigned test, size_t panel)
{
    struct axes axes = { .top = (double)(panel * PANEL) + TOP, .x_first = 64, .x_last = -1 };
    double min = INFINITY, max = 0;
    for (size_t i = 0; i < plot->count; i++) {
        const struct perf_figures *figures = &plot->figures[i];
        if (figures->test != test) {
            continue;
        }
        double low = value_of(figures);
        double high = test == PERF_LATENCY ? figures->latency_us[PERF_P99] : low;
        min = low > 0 && low < min ? low : min;
        max = high > max ? high : max;
        axes.x_first = x_of(figures) < axes.x_first ? x_of(figures) : axes.x_first;
        axes.x_last = x_of(figures) > axes.x_last ? x_of(figures) : axes.x_last;
    }
    if (axes.x_first == axes.x_last) {
        axes.x_first -= 1;
        axes.x_last += 1;
    }
    if (!isfinite(min) || max <= 0) {
        min = max = 1;
    }
    if (max / min > 20) {
        log_ticks(&axes, min, max);
    } else {
        linear_ticks(&axes, max);
    }
    return axes;
}

static double x_at(const struct axes *axes, double x)
{
    return LEFT + (x - axes->x_first) / (axes->x_last - axes->x_first) * PLOT_WIDTH;
}

static double y_at(const struct axes *axes, double value)
{
    double share = (value - axes->y_first) / (axes->y_last - axes->y_first);
    if (axes->y_log) {
        value = value < axes->y_first ? axes->y_first : value;
        share = log(value / axes->y_first) / log(axes->y_last / axes->y_first);
    }
    return axes->top + PLOT_HEIGHT * (1 - share);
}

/* ------------------------------------------------------------------------------------------ SVG */

static void print_xml(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc((unsigned char)*text < 0x20 || (unsigned char)*text > 0x7e ? '?' : *text, out);
        }
    }
}

static void draw_text(FILE *out, double x, double y, const char *anchor, const char *text)
{
    fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    print_xml(out, text);
    fputs("</text>\n", out);
}

static void draw_line(FILE *out, const char *kind, double x1, double y1, double x2, double y2)
{
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", kind, x1,
            y1, x2, y2);
}

static void draw_axes(FILE *out, const struct axes *axes, unsigned test)
{
    double bottom = axes->top + PLOT_HEIGHT;
    int powers = (int)floor(axes->x_last) - (int)ceil(axes->x_first) + 1;
    int step = (powers + X_LABELS_MAX - 1) / X_LABELS_MAX;
    step = step < 1 ? 1 : step;
    for (int power = (int)ceil(axes->x_first); power <= (int)floor(axes->x_last); power++) {
        double x = x_at(axes, power);
        draw_line(out, "grid", x, axes->top, x, bottom);
        if ((power - (int)ceil(axes->x_first)) % step == 0) {
            char label[TOOL_NUMBER_MAX] = "0";
            if (power >= 0) {
                perf_format_size(UINT64_C(1) << power, label);
            }
            draw_text(out, x, bottom + 17, "middle", label);
        }
    }
    for (size_t i = 0; i < axes->tick_count; i++) {
        double y = y_at(axes, axes->ticks[i]);
        char label[TOOL_NUMBER_MAX];
        draw_line(out, "grid", LEFT, y, LEFT + PLOT_WIDTH, y);
        snprintf(label, sizeof(label), "%g", axes->ticks[i]);
        draw_text(out, LEFT - 8, y + 4, "end", label);
        if (test == PERF_BANDWIDTH) {
            snprintf(label, sizeof(label), "%g", axes->ticks[i] * 8);
            draw_text(out, LEFT + PLOT_WIDTH + 8, y + 4, "start", label);
        }
    }
    fprintf(out, "<rect class=\"frame\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\"/>\n", LEFT,
            axes->top, PLOT_WIDTH, PLOT_HEIGHT);
    draw_text(out, LEFT + PLOT_WIDTH / 2.0, bottom + 38, "middle", "bytes of an operation");
    double middle = axes->top + PLOT_HEIGHT / 2.0;
    fprintf(out,
            "<text transform=\"translate(18 %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
            middle, unit_of(test));
    if (test == PERF_BANDWIDTH) {
        fprintf(out,
                "<text transform=\"translate(%d %.1f) rotate(90)\" text-anchor=\"middle\">Gbit/s"
                "</text>\n",
                WIDTH - 16, middle);
    }
}

/* A line through the values of a curve, in the order of the figures. */
static void draw_polyline(FILE *out, struct plot *plot, const struct axes *axes, unsigned test,
                          size_t curve, bool p99)
{
    fprintf(out, "<polyline%s points=\"", p99 ? " class=\"p99\"" : "");
    for (size_t i = 0; i < plot->count; i++) {
        const struct perf_figures *figures = &plot->figures[i];
        if (figures->test == test && curve_of(plot, i) == curve) {
            fprintf(out, "%.1f,%.1f ", x_at(axes, x_of(figures)),
                    y_at(axes, p99 ? figures->latency_us[PERF_P99] : value_of(figures)));
        }
    }
    fputs("\"/>\n", out);
}

/* Returns whether the test has figures of this curve. */
static bool draw_curve(FILE *out, struct plot *plot, const struct axes *axes, unsigned test,
                       size_t curve)
{
    bool any = false;
    for (size_t i = 0; i < plot->count; i++) {
        any = any || (plot->figures[i].test == test && curve_of(plot, i) == curve);
    }
    if (!any) {
        return false;
    }
    const char *colour = colours[curve % TOOL_COUNT_OF(colours)];
    fprintf(out, "<g class=\"curve\" stroke=\"%s\" fill=\"none\">\n", colour);
    draw_polyline(out, plot, axes, test, curve, false);
    if (test == PERF_LATENCY) {
        draw_polyline(out, plot, axes, test, curve, true);
    }
    for (size_t i = 0; i < plot->count; i++) {
        const struct perf_figures *figures = &plot->figures[i];
        if (figures->test != test || curve_of(plot, i) != curve) {
            continue;
        }
        fprintf(out, "<circle fill=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", colour,
                x_at(axes, x_of(figures)), y_at(axes, value_of(figures)));
        print_xml(out, plot->curves[curve].label);
        fprintf(out, ", %" PRIu64 " bytes: %.4g %s</title></circle>\n", figures->size,
                value_of(figures), unit_of(test));
    }
    fputs("</g>\n", out);
    return true;
}

static void title_of(const struct plot *plot, unsigned test, char *out, size_t size)
{
    static const char *const directions[] = { "", ", from the server", ", both directions" };
    const struct perf_figures *figures = plot->figures;
    while (figures->test != test) {
        figures++;
    }
    snprintf(out, size, "%s %s%s%s", perf_op_names[figures->op], perf_test_names[test],
             directions[figures->direction],
             test != PERF_LATENCY       ? ""
             : figures->half_round_trip ? ": half round trip, median; dashed: 99 of 100"
                                        : ": round trip, median; dashed: 99 of 100");
}

static void draw_panel(FILE *out, struct plot *plot, size_t panel)
{
    unsigned test = plot->tests[panel];
    struct axes axes = axes_of(plot, test, panel);
    char title[160];
    title_of(plot, test, title, sizeof(title));
    fprintf(out, "<g class=\"panel\">\n<text class=\"title\" x=\"%d\" y=\"%.1f\">", LEFT,
            axes.top - 36);
    print_xml(out, title);
    fputs("</text>\n", out);
    draw_axes(out, &axes, test);
    double x = LEFT;
    for (size_t curve = 0; curve < plot->curve_count; curve++) {
        if (!draw_curve(out, plot, &axes, test, curve)) {
            continue;
        }
        const char *label = plot->curves[curve].label;
        fprintf(
            out, "<g class=\"legend\"><rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"4\" fill=\"%s\"/>",
            x, axes.top - 19, colours[curve % TOOL_COUNT_OF(colours)]);
        draw_text(out, x + 22, axes.top - 13, "start", label);
        fputs("</g>\n", out);
        x += 44 + 7.0 * (double)strlen(label);
    }
    fputs("</g>\n", out);
}

static void draw_svg(FILE *out, struct plot *plot)
{
    int height = (int)plot->panel_count * PANEL;
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "viewBox=\"0 0 %d %d\">\n"
            "<style>text{font:12px sans-serif;fill:#333}.title{font-size:15px;font-weight:bold}"
            ".grid{stroke:#ddd}.frame{fill:none;stroke:#888}polyline{stroke-width:2}"
            ".p99{stroke-width:1;stroke-dasharray:5 4}</style>\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
            WIDTH, height, WIDTH, height, WIDTH, height);
    for (size_t panel = 0; panel < plot->panel_count; panel++) {
        draw_panel(out, plot, panel);
    }
    fputs("</svg>\n", out);
}

/* -------------------------------------------------------------------------------------- gnuplot */

/* A text in single quotes. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text != '\0'; text++) {
        fputs(*text == '\'' ? "'" : "", out);
        fputc(*text == '\n' ? ' ' : *text, out);
    }
    fputc('\'', out);
}

static void write_gnuplot_panel(FILE *out, struct plot *plot, unsigned test)
{
    struct axes axes = axes_of(plot, test, 0);
    char title[160];
    title_of(plot, test, title, sizeof(title));
    fputs("set title ", out);
    print_quoted(out, title);
    fprintf(out, "\nset ylabel '%s'\n%s logscale y\n", unit_of(test), axes.y_log ? "set" : "unset");
    fprintf(out, "set xrange [%.10g:%.10g]\nset yrange [%.10g:%.10g]\nplot ", exp2(axes.x_first),
            exp2(axes.x_last), axes.y_first, axes.y_last);
    for (size_t curve = 0; curve < plot->curve_count; curve++) {
        fprintf(out, "%s'-' using 1:2 with linespoints pointtype 7 linecolor rgb '%s' title ",
                curve > 0 ? ", " : "", colours[curve % TOOL_COUNT_OF(colours)]);
        print_quoted(out, plot->curves[curve].label);
    }
    fputc('\n', out);
    for (size_t curve = 0; curve < plot->curve_count; curve++) {
        for (size_t i = 0; i < plot->count; i++) {
            if (plot->figures[i].test == test && curve_of(plot, i) == curve) {
                fprintf(out, "%.10g %.10g\n", exp2(x_of(&plot->figures[i])),
                        value_of(&plot->figures[i]));
            }
        }
        fputs("e\n", out);
    }
}

static void write_gnuplot(FILE *out, struct plot *plot, const char *file)
{
    fprintf(
        out,
        "set terminal png truecolor enhanced size %d,%d\nset termoption noenhanced\nset output ",
        WIDTH, (int)plot->panel_count * PANEL);
    print_quoted(out, file);
    fprintf(out,
            "\nset logscale x 2\nset grid\nset key outside top horizontal\nset xlabel 'bytes of an "
            "operation'\nset format x '%%.0b %%B'\nset multiplot layout %zu,1\n",
            plot->panel_count);
    for (size_t panel = 0; panel < plot->panel_count; panel++) {
        write_gnuplot_panel(out, plot, plot->tests[panel]);
    }
    fputs("unset multiplot\n", out);
}

/* ------------------------------------------------------------------------------- other programs */

/* Programs that make a PNG, the best first. @ stands for the file read, % for the PNG. */
static const struct converter {
    const char *name;
    const char *arguments[5];
} converters[] = {
    { "rsvg-convert", { "-o", "%", "@" } },
    { "resvg", { "@", "%" } },
    { "inkscape", { "@", "-o", "%" } },
    { "gnuplot", { "@" } }, /* reads a script instead of the SVG */
    { "magick", { "@", "%" } },
    { "convert", { "@", "%" } },
};

static bool in_path(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, ":");
        char file[4096];
        snprintf(file, sizeof(file), "%.*s/%s", (int)length, at, name);
        if (length > 0 && access(file, X_OK) == 0) {
            return true;
        }
        at += length + (at[length] == ':' ? 1 : 0);
    }
    return false;
}

static const struct converter *find_converter(void)
{
    for (size_t i = 0; i < TOOL_COUNT_OF(converters); i++) {
        if (in_path(converters[i].name)) {
            return &converters[i];
        }
    }
    return NULL;
}

static bool run_converter(const struct converter *converter, char *from, char *png)
{
    char *arguments[TOOL_COUNT_OF(converter->arguments) + 2] = { NULL };
    char name[32], output[4];
    snprintf(name, sizeof(name), "%s", converter->name);
    snprintf(output, sizeof(output), "-o");
    arguments[0] = name;
    for (size_t i = 0; i < TOOL_COUNT_OF(converter->arguments) && converter->arguments[i] != NULL;
         i++) {
        arguments[i + 1] = converter->arguments[i][0] == '@'   ? from
                           : converter->arguments[i][0] == '%' ? png
                                                               : output;
    }
    sigset_t none;
    posix_spawnattr_t attributes;
    pid_t pid = 0;
    int status = 0;
    sigemptyset(&none);
    int error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
        error = posix_spawnp(&pid, converter->name, NULL, &attributes, arguments, environ);
        posix_spawnattr_destroy(&attributes);
    }
    while (error == 0 && waitpid(pid, &status, 0) < 0) {
        error = errno == EINTR ? 0 : errno;
    }
    return error == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* ------------------------------------------------------------------------------------ the files */

static bool ends_with(const char *file, const char *end)
{
    size_t length = strlen(file), end_length = strlen(end);
    return length > end_length && strcmp(file + length - end_length, end) == 0;
}

int perf_plot_check(const char *file)
{
    bool png = ends_with(file, ".png");
    if (!png && !ends_with(file, ".svg")) {
        tool_error("perf",
                   "--plot: \"%s\" ends neither in .svg nor in .png, so its format is not "
                   "known; name such a file",
                   file);
        return TOOL_USAGE;
    }
    if (png && find_converter() == NULL) {
        tool_error("perf", "--plot: no program that makes a PNG is in PATH (rsvg-convert, resvg, "
                           "inkscape, gnuplot, ImageMagick); install librsvg2-bin, or name a file "
                           "that ends in .svg");
        return TOOL_FAILED;
    }
    bool existed = access(file, F_OK) == 0;
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        tool_error("perf", "--plot: cannot write %s: %s; name another file", file, strerror(errno));
        return TOOL_FAILED;
    }
    close(fd);
    if (!existed) {
        unlink(file);
    }
    return TOOL_OK;
}

/* Writes the SVG, or the script for gnuplot. On failure prints the error and returns false. */
static bool write_source(struct plot *plot, const char *file, const char *gnuplot_png)
{
    FILE *out = fopen(file, "we");
    if (out != NULL && gnuplot_png != NULL) {
        write_gnuplot(out, plot, gnuplot_png);
    } else if (out != NULL) {
        draw_svg(out, plot);
    }
    if (out == NULL || (fclose(out) != 0)) {
        tool_error("perf", "--plot: cannot write %s: %s; make room, or name another file", file,
                   strerror(errno));
        return false;
    }
    return true;
}

int perf_plot(const char *file, const struct perf_figures *figures, size_t count,
              const char *const *labels)
{
    static struct plot plot;
    plot = (struct plot){ .figures = figures, .count = count, .labels = labels };
    collect(&plot);
    if (ends_with(file, ".svg")) {
        return write_source(&plot, file, NULL) ? TOOL_OK : TOOL_FAILED;
    }
    const struct converter *converter = find_converter();
    char source[4096], png[4096];
    if (converter == NULL ||
        snprintf(source, sizeof(source), "%s.svg", file) >= (int)sizeof(source)) {
        return TOOL_FAILED;
    }
    snprintf(png, sizeof(png), "%s", file);
    bool gnuplot = strcmp(converter->name, "gnuplot") == 0;
    bool good = write_source(&plot, source, gnuplot ? file : NULL);
    if (good && !run_converter(converter, source, png)) {
        tool_error("perf", "--plot: %s could not make %s; name a file that ends in .svg",
                   converter->name, file);
        good = false;
    }
    unlink(source);
    return good ? TOOL_OK : TOOL_FAILED;
}

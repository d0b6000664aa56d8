// LoRA row by row, for the instruction set of the file that includes it: the weights of an adapter
// are read once for all of its rows. One parallel region a call: shrink, a barrier, expand.
//
// A row's bits never depend on its neighbours: each element of t is one accumulator over all of K in
// order, each element of y one over the rank in order, however rows and columns are blocked.
#include <omp.h>

#include "lora.h"
#include "pairs.h"

namespace {

constexpr int DOTS = REGISTERS / 2, MOST_ROWS = REGISTERS / 8;  // accumulators: half of them
constexpr int RANK_STEP = 4, COLUMN_STEP = 64;  // where threads may part
// Reading a weight costs as much as using it for about so many rows.
constexpr int64_t READ_COST = 16;
constexpr int64_t TILE_GAIN = 8;

template <int D>
using El = typename Row<D>::T;

// Element by element: cleared as one object, accumulators would live in memory.
template <int R, int N>
static inline void clear(vf (&acc)[R][N]) {
    for (int r = 0; r < R; r++)
        for (int n = 0; n < N; n++) acc[r][n] = set(0.0f);
}

// Ask for the line that holds p. Blocks are short and lie apart, so what the CPU foresees by itself
// ends with each; asked for while the block before is computed, a line is there when it is needed.
static inline void ask(const void *p) { __builtin_prefetch(p); }

// out[r * J + j] = x[r] . a[j]; `ahead` are the rows that will be read next.
template <int D, int R, int J>
static void dots(const El<D> *const *x, const El<D> *const *a, const El<D> *const *ahead,
                 int64_t width, float *out) {
    vf acc[R][J];
    clear(acc);
    int64_t k = 0;
    for (; k + 2 * W <= width; k += 2 * W) {
        vf xl[R], xh[R];
        for (int r = 0; r < R; r++) Row<D>::load(x[r] + k, xl[r], xh[r]);
        for (int j = 0; j < J; j++) {
            vf al, ah;
            ask(ahead[j] + k);
            Row<D>::load(a[j] + k, al, ah);
            for (int r = 0; r < R; r++) acc[r][j] = fma(xh[r], ah, fma(xl[r], al, acc[r][j]));
        }
    }
    if (k < width) {
        vf xl[R], xh[R];
        for (int r = 0; r < R; r++) load_first<D>(x[r] + k, width - k, xl[r], xh[r]);
        for (int j = 0; j < J; j++) {
            vf al, ah;
            load_first<D>(a[j] + k, width - k, al, ah);
            for (int r = 0; r < R; r++) acc[r][j] = fma(xh[r], ah, fma(xl[r], al, acc[r][j]));
        }
    }
    for (int r = 0; r < R; r++)
        for (int j = 0; j < J; j++) out[r * J + j] = sum(acc[r][j]);
}

// t of R rows, ranks from .. to (at most DOTS of them). Beyond the last rank it is repeated: its
// bytes are in the cache, and the answers are dropped.
template <int D, int R>
static void shrink_rows(const El<D> *const *x, const El<D> *const *a, const El<D> *const *ahead,
                        int64_t ranks, int64_t width, float *const *t) {
    constexpr int J = DOTS / R;
    for (int64_t j = 0; j < ranks; j += J) {
        float out[R * J];
        dots<D, R, J>(x, a + j, ahead + j, width, out);
        const int64_t n = ranks - j < J ? ranks - j : J;
        for (int r = 0; r < R; r++) memcpy(t[r] + j, out + r * J, (size_t)n * sizeof(float));
    }
}

// Where the columns after a block are read from: rows of `side`, from column `column` on.
struct Ahead {
    const TsSide *side;
    int64_t rank, column;
};

// y[r], columns c .. c + S * 2 * W, += sum over j of t[r][j] * Bt[j]
template <int D, int R, int S>
static void expand_block(const float *const *t, const TsPair &pair, El<D> *const *y, int64_t c,
                         const Ahead &ahead) {
    const TsSide bt = pair.bt;
    vf acc[R][2 * S];
    clear(acc);
    for (int64_t j = 0; j < pair.rank; j++) {
        const El<D> *b = (const El<D> *)row_of(bt, j) + c;
        if (j < ahead.rank) {
            const El<D> *next = (const El<D> *)row_of(*ahead.side, j) + ahead.column;
            for (int s = 0; s < S; s++) ask(next + s * 2 * W);
        }
        vf f[R];
        for (int r = 0; r < R; r++) f[r] = set(t[r][j]);
        for (int s = 0; s < S; s++) {
            vf lo, hi;
            Row<D>::load(b + s * 2 * W, lo, hi);
            for (int r = 0; r < R; r++) {
                acc[r][2 * s] = fma(f[r], lo, acc[r][2 * s]);
                acc[r][2 * s + 1] = fma(f[r], hi, acc[r][2 * s + 1]);
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int s = 0; s < S; s++) {
            El<D> *p = y[r] + c + s * 2 * W;
            vf lo, hi;
            Row<D>::load(p, lo, hi);
            Row<D>::store(p, lo + acc[r][2 * s], hi + acc[r][2 * s + 1]);
        }
}

// The n < 2 W columns from c on.
template <int D, int R>
static void expand_rest(const float *const *t, const TsPair &pair, El<D> *const *y, int64_t c,
                        int64_t n) {
    vf acc[R][2];
    clear(acc);
    for (int64_t j = 0; j < pair.rank; j++) {
        vf lo, hi;
        load_first<D>((const El<D> *)row_of(pair.bt, j) + c, n, lo, hi);
        for (int r = 0; r < R; r++) {
            const vf f = set(t[r][j]);
            acc[r][0] = fma(f, lo, acc[r][0]);
            acc[r][1] = fma(f, hi, acc[r][1]);
        }
    }
    for (int r = 0; r < R; r++) {
        vf lo, hi;
        load_first<D>(y[r] + c, n, lo, hi);
        store_first<D>(y[r] + c, n, lo + acc[r][0], hi + acc[r][1]);
    }
}

// Columns from .. to of R rows: as many at once as fit the registers, for long runs of each row.
template <int D, int R>
static void expand_rows(const float *const *t, const TsPair &pair, El<D> *const *y, int64_t from,
                        int64_t to, const Ahead &ahead) {
    constexpr int S = DOTS / 2 / R, B = S * 2 * W;
    int64_t c = from;
    for (; c + B <= to; c += B) {
        const bool last = c + B >= to;
        const Ahead more = {&pair.bt, pair.rank, c + B};
        expand_block<D, R, S>(t, pair, y, c, last ? ahead : more);
    }
    for (; c + 2 * W <= to; c += 2 * W) expand_block<D, R, 1>(t, pair, y, c, ahead);
    if (c < to) expand_rest<D, R>(t, pair, y, c, to - c);
}

// What a thread does at a time: ranks (or columns, or rows) from .. to of an entry x module. The
// next one is told for its weights' sake; an empty one asks for nothing.
struct Unit {
    const TsEntry *e;
    const TsPair *p;
    int64_t m, from, to;
};

// One thread's view of a call.
struct Share {
    const TsStep &step;
    const TsGroup &group;
    const TsRows &rows;
    int64_t layer;
    char *packed;

    const TsEntry &entry(int64_t e) const { return ((const TsEntry *)step.entries)[e]; }
    const TsPair &pair(const TsEntry &e, const TsModule &m) const {
        return ((const TsPair *)e.pairs)[layer * step.modules + m.index];
    }
    const int64_t *numbers(const TsEntry &e) const { return (const int64_t *)step.rows + e.first; }
    const char *x(int64_t row) const { return rows.x + row * rows.x_stride; }
    char *y(int64_t row) const { return rows.y + row * rows.y_stride; }
    float *t(const TsEntry &e, int64_t m) const {
        return (float *)step.t + e.t + m * e.count * e.t_width;
    }
    static int64_t cost(const TsEntry &e, const TsPair &p, int64_t width) {
        return p.rank * width * (READ_COST + (e.tall ? e.count / TILE_GAIN : e.count));
    }

    // This thread's part of all entries x modules, cut by cost: of shrink at ranks, of expand at
    // columns, of tall entries at rows. The next thread begins exactly where this one ends.
    void part(bool expands, void (*run)(const Share &, const Unit &, const Unit &), int me,
              int threads) const {
        int64_t total = 0;
        for (int64_t i = 0; i < step.count; i++)
            for (int64_t m = 0; m < group.count; m++) {
                const TsPair &p = pair(entry(i), group.modules[m]);
                total += cost(entry(i), p, expands ? group.modules[m].out : group.width);
            }
        const int64_t lo = total * me / threads, hi = total * (me + 1) / threads;
        int64_t at = 0;
        Unit now = {};
        for (int64_t i = 0; i < step.count && at < hi; i++) {
            const TsEntry &e = entry(i);
            for (int64_t m = 0; m < group.count && at < hi; m++) {
                const TsPair &p = pair(e, group.modules[m]);
                const int64_t out = group.modules[m].out;
                const int64_t price = cost(e, p, expands ? out : group.width);
                if (price && at + price > lo) {
                    const int64_t size = e.tall ? e.count : expands ? out : p.rank;
                    const int64_t step_by = e.tall ? 16 : expands ? COLUMN_STEP : RANK_STEP;
                    const int64_t from = cut(lo - at, price, size, step_by);
                    const int64_t to = cut(hi - at, price, size, step_by);
                    if (from < to) {
                        const Unit next = {&e, &p, m, from, to};
                        if (now.e) run(*this, now, e.tall ? Unit{} : next);
                        now = next;
                    }
                }
                at += price;
            }
        }
        if (now.e) run(*this, now, Unit{});
    }

    static int64_t cut(int64_t share, int64_t price, int64_t size, int64_t step_by) {
        if (share <= 0) return 0;
        if (share >= price) return size;
        return size * share / price / step_by * step_by;
    }
};

template <int D>
static void shrink(const Share &share, const Unit &now, const Unit &next) {
    const TsEntry &e = *now.e;
    const TsPair &p = *now.p;
    const int64_t m = now.m, from = now.from, to = now.to;
    if (e.tall) {
#if defined(TS_TILES)
        tall_shrink(p, share.group.width, e.count, from, to, share.x(share.numbers(e)[0]),
                    share.rows.x_stride, (char *)share.t(e, m), e.t_width, share.packed);
#endif
        return;
    }
    const int64_t *number = share.numbers(e);
    float *first = share.t(e, m);
    for (int64_t j = from; j < to; j += DOTS) {
        const El<D> *a[DOTS], *ahead[DOTS];
        for (int i = 0; i < DOTS; i++) {
            a[i] = (const El<D> *)row_of(p.a, j + i < to ? j + i : to - 1);
            const int64_t after = j + DOTS + i, other = next.from + i;
            if (after < to)
                ahead[i] = (const El<D> *)row_of(p.a, after);
            else
                ahead[i] = other < next.to ? (const El<D> *)row_of(next.p->a, other) : a[i];
        }
        const int64_t ranks = to - j < DOTS ? to - j : DOTS;
        for (int64_t i = 0; i < e.count;) {
            const El<D> *some[MOST_ROWS];
            float *out[MOST_ROWS];
            const int64_t left = e.count - i;
            const int n = left >= MOST_ROWS ? MOST_ROWS : left >= 2 ? 2 : 1;
            for (int r = 0; r < n; r++) {
                some[r] = (const El<D> *)share.x(number[i + r]);
                out[r] = first + (i + r) * e.t_width + j;
            }
            if (n == MOST_ROWS)
                shrink_rows<D, MOST_ROWS>(some, a, ahead, ranks, share.group.width, out);
            else if (n == 2)
                shrink_rows<D, 2>(some, a, ahead, ranks, share.group.width, out);
            else
                shrink_rows<D, 1>(some, a, ahead, ranks, share.group.width, out);
            i += n;
        }
    }
}

template <int D>
static void expand(const Share &share, const Unit &now, const Unit &next) {
    const TsEntry &e = *now.e;
    const TsPair &p = *now.p;
    const int64_t m = now.m, from = now.from, to = now.to;
    const Ahead ahead = {next.p ? &next.p->bt : nullptr, next.p ? next.p->rank : 0, next.from};
    const TsModule &module = share.group.modules[m];
    if (e.tall) {
#if defined(TS_TILES)
        tall_expand(p, module.out, e.count, from, to,
                    (char *)((El<D> *)share.y(share.numbers(e)[0]) + module.first), share.rows.y_stride,
                    (const char *)share.t(e, m), e.t_width, share.packed);
#endif
        return;
    }
    const int64_t *number = share.numbers(e);
    const float *first = share.t(e, m);
    for (int64_t i = 0; i < e.count;) {
        const float *some[MOST_ROWS];
        El<D> *out[MOST_ROWS];
        const int64_t left = e.count - i;
        const int n = left >= MOST_ROWS ? MOST_ROWS : left >= 2 ? 2 : 1;
        for (int r = 0; r < n; r++) {
            some[r] = first + (i + r) * e.t_width;
            out[r] = (El<D> *)share.y(number[i + r]) + module.first;
        }
        if (n == MOST_ROWS)
            expand_rows<D, MOST_ROWS>(some, p, out, from, to, ahead);
        else if (n == 2)
            expand_rows<D, 2>(some, p, out, from, to, ahead);
        else
            expand_rows<D, 1>(some, p, out, from, to, ahead);
        i += n;
    }
}

static inline void lora_of_dtype(const TsStep &step, const TsGroup &group, int64_t layer,
                                 const TsRows &rows) {
    auto shrinks = shrink<TS_FP32>, expands = expand<TS_FP32>;
    if (step.dtype == TS_BF16) shrinks = shrink<TS_BF16>, expands = expand<TS_BF16>;
#if defined(TS_HAS_F16)
    if (step.dtype == TS_FP16) shrinks = shrink<TS_FP16>, expands = expand<TS_FP16>;
#else
    if (step.dtype == TS_FP16) return;
#endif
#pragma omp parallel num_threads((int)step.threads)
    {
        const int me = omp_get_thread_num(), threads = omp_get_num_threads();
        const Share share = {step, group, rows, layer,
                             (char *)step.packed + me * step.packed_bytes};
#if defined(TS_TILES)
        char saved[64];
        if (step.packed) tiles_begin(saved);
#endif
        share.part(false, shrinks, me, threads);
#pragma omp barrier
        share.part(true, expands, me, threads);
#if defined(TS_TILES)
        if (step.packed) tiles_end(saved);
#endif
    }
}

}  // namespace

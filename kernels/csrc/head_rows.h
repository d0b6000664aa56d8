// The output head by vectors: some rows of w against four of x at a time, so that what is loaded is
// used often. Compiled once for each instruction set.
#pragma once
#include <omp.h>

#include "head.h"
#include "pairs.h"

namespace {

constexpr int MOST = REGISTERS / 8;  // rows of w at a time: sums take half the registers

static inline int64_t whole(int64_t width) { return (width + 2 * W - 1) / (2 * W) * (2 * W); }

// x in the order in which w's elements come out of `Row<D>::load`, zeros up to whole vectors.
template <int D>
static void arrange(const float *x, int64_t width, float *out) {
    for (int64_t k = 0; k < width; k += 2 * W) {
        const int64_t n = width - k < 2 * W ? width - k : 2 * W;
        float some[2 * W] = {};
        memcpy(some, x + k, (size_t)n * sizeof *x);
        for (int i = 0; i < W; i++) {
            out[k + i] = D == TS_BF16 ? some[2 * i] : some[i];
            out[k + W + i] = D == TS_BF16 ? some[2 * i + 1] : some[W + i];
        }
    }
}

// V rows of w from `w` on, R of x from `x` on: one sum each.
template <int D, int V, int R>
static inline void dots(const typename Row<D>::T *w, const float *x, int64_t width, float *out,
                        int64_t stride) {
    const int64_t step = whole(width);
    vf sums[V][R] = {};
    const auto add = [&](int64_t k, const vf *lo, const vf *hi) {
        for (int r = 0; r < R; r++) {
            const vf first = read<vf>(x + r * step + k), second = read<vf>(x + r * step + k + W);
            for (int v = 0; v < V; v++) sums[v][r] = fma(hi[v], second, fma(lo[v], first, sums[v][r]));
        }
    };
    vf lo[V], hi[V];
    int64_t k = 0;
    for (; k + 2 * W <= width; k += 2 * W) {
        for (int v = 0; v < V; v++) Row<D>::load(w + v * width + k, lo[v], hi[v]);
        add(k, lo, hi);
    }
    if (k < width) {
        for (int v = 0; v < V; v++) load_first<D>(w + v * width + k, width - k, lo[v], hi[v]);
        add(k, lo, hi);
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) out[r * stride + v] = sum(sums[v][r]);
}

template <int D, int V>
static inline void rows_of(const TsHead &h, const typename Row<D>::T *w, const float *x, float *out) {
    const int64_t step = whole(h.width);
    int64_t r = 0;
    for (; r + 4 <= h.rows; r += 4)
        dots<D, V, 4>(w, x + r * step, h.width, out + r * h.out_stride, h.out_stride);
    x += r * step;
    out += r * h.out_stride;
    if (h.rows - r == 3) dots<D, V, 3>(w, x, h.width, out, h.out_stride);
    if (h.rows - r == 2) dots<D, V, 2>(w, x, h.width, out, h.out_stride);
    if (h.rows - r == 1) dots<D, V, 1>(w, x, h.width, out, h.out_stride);
}

template <int D>
static void head_of(const TsHead &h) {
    typedef typename Row<D>::T T;
    float *x = (float *)h.scratch;
    const T *w = (const T *)h.w;
    float *out = (float *)h.out;
    for (int64_t r = 0; r < h.rows; r++)
        arrange<D>((const float *)h.x + r * h.width, h.width, x + r * whole(h.width));
#pragma omp parallel for num_threads(h.threads) schedule(static)
    for (int64_t v = 0; v < h.vocab; v += MOST) {
        if (v + MOST <= h.vocab)
            rows_of<D, MOST>(h, w + v * h.width, x, out + v);
        else
            for (int64_t i = v; i < h.vocab; i++) rows_of<D, 1>(h, w + i * h.width, x, out + i);
    }
}

static inline void head_of_dtype(const TsHead &h) {
    if (h.dtype == TS_BF16) return head_of<TS_BF16>(h);
#if defined(TS_HAS_F16)
    if (h.dtype == TS_FP16) return head_of<TS_FP16>(h);
#endif
}

}  // namespace

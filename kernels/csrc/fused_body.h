// The element-wise ops of a step, for the instruction set of `simd.h`: RMSNorm with the
// residual add, SiLU times up, norm and rotation of heads. One row a call; who runs which row is
// decided in `attention_body.h` and below.
#pragma once

#include "attention_api.h"
#include "exponential.h"

namespace {

// Rows x width below which a second thread costs more than it brings.
constexpr int64_t ALONE_BELOW = 8192;

template <class T>
__attribute__((noinline)) void normed_row(float *x, const T *added, const float *weight,
                                          int64_t width, float eps, T *out) {
    vf squares = set(0.0f);
    over(width, [&](int64_t i, int n) {
        vf v = take(x + i, n);
        if (added) {
            v = v + take(added + i, n);
            put(x + i, v, n);
        }
        squares = fma(v, v, squares);
    });
    const float mean = sum(squares) / static_cast<float>(width);
    const vf scale = set(1.0f / __builtin_sqrtf(mean + eps));
    over(width, [&](int64_t i, int n) {
        put(out + i, take(x + i, n) * scale * take(weight + i, n), n);
    });
}

template <class T>
void normed(const TsNormed& a) {
    const int64_t width = a.width;
    const auto row = [&](int64_t t) {
        normed_row(a.x + t * width,
                              a.added ? static_cast<const T*>(a.added) + t * width : nullptr,
                              a.weight, width, a.eps, static_cast<T*>(a.out) + t * width);
    };
    if (a.threads < 2 || a.rows * width < ALONE_BELOW) {
        for (int64_t t = 0; t < a.rows; ++t) row(t);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(a.threads)
    for (int64_t t = 0; t < a.rows; ++t) row(t);
}

template <class T>
__attribute__((noinline)) void gated_row(const T *gate, int64_t width, T *out) {
    over(width, [&](int64_t i, int n) {
        put(out + i, Weight<T>::gated(take(gate + i, n), take(gate + width + i, n)), n);
    });
}

template <class T>
void gated(const TsGated& a) {
    const int64_t width = a.width;
    const auto row = [&](int64_t t) {
        gated_row(static_cast<const T*>(a.gate_up) + t * 2 * width, width,
                  static_cast<T*>(a.out) + t * width);
    };
    if (a.threads < 2 || a.rows * width < ALONE_BELOW) {
        for (int64_t t = 0; t < a.rows; ++t) row(t);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(a.threads)
    for (int64_t t = 0; t < a.rows; ++t) row(t);
}

// One head: RMSNorm with `weight` unless null, then the rotation of its halves, into `out`.
// cos, sin: the position's first and second half of the tables (sin of the second is positive).
template <class T>
void turned_head(const T *in, const float *weight, float eps, const float *cos, const float *sin,
                                  int64_t dim, T *out) {
    const int64_t half = dim / 2;
    vf scale = set(1.0f);
    if (weight) {
        vf squares = set(0.0f);
        over(dim, [&](int64_t i, int n) {
            const vf v = take(in + i, n);
            squares = fma(v, v, squares);
        });
        scale = set(1.0f / __builtin_sqrtf(sum(squares) / static_cast<float>(dim) + eps));
    }
    over(half, [&](int64_t i, int n) {
        vf a = take(in + i, n), b = take(in + half + i, n);
        if (weight) {
            a = a * scale * take(weight + i, n);
            b = b * scale * take(weight + half + i, n);
        }
        const vf c = take(cos + i, n), s = take(sin + i, n);
        put(out + i, a * c - b * s, n);
        put(out + half + i, b * c + a * s, n);
    });
}

}  // namespace

// Attention of many query rows of one sequence over its pages: blocks of queries by blocks of keys.
//
// A task is one KV head and one block of queries, all query heads of that head together, so that a
// packed block of keys serves them all. Blocks of keys start at multiples of BLOCK_KEYS of the
// sequence: where a prompt was cut into chunks changes no bit of a float32 answer. Softmax is
// online, in float32; products are float32, or bfloat16 tiles where `Tiles` says so.
#pragma once

#include "attention_decode.h"

namespace {

constexpr int64_t BLOCK_KEYS = 64;
// Queries that are computed together: the rows of a tile.
constexpr int64_t ABREAST = 16;
// Floats of the O of a task: a share of the second-level cache.
constexpr int64_t TASK_FLOATS = 65536;

inline int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Queries of a task, by the length of the chunk they belong to.
inline int64_t block_queries(const TsArena &a, int64_t count) {
    const int64_t fit = TASK_FLOATS / (a.heads / a.kv_heads * rounded_up(a.head_dim, 16));
    const int64_t most = fit >= 128 ? 128 : fit >= 64 ? 64 : fit >= 32 ? 32 : ABREAST;
    return count < 4 * most && most > ABREAST ? most / 2 : most;
}

// C [rows, n] = (ADD ? C : 0) + A [rows, depth] · B [depth, n], one fused multiply-add after
// another over depth: a row's bits do not depend on how many rows are computed with it.
template <bool ADD, int R, int N>
inline void product(const float *a, int64_t lda, const float *b, int64_t ldb, float *c, int64_t ldc,
                    int64_t depth) {
    vf s[R][N];
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) s[r][n] = ADD ? load(c + r * ldc + n * W) : set(0.0f);
    for (int64_t k = 0; k < depth; ++k) {
        vf v[N];
        for (int n = 0; n < N; ++n) v[n] = load(b + k * ldb + n * W);
        for (int r = 0; r < R; ++r) {
            const vf x = set(a[r * lda + k]);
            for (int n = 0; n < N; ++n) s[r][n] = fma(x, v[n], s[r][n]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int n = 0; n < N; ++n) store(c + r * ldc + n * W, s[r][n]);
}

// As many columns as keep 4 rows of sums in registers.
constexpr int COLUMNS = REGISTERS / 8;

template <bool ADD, int N>
inline void product_rows(int64_t rows, const float *a, int64_t lda, const float *b, int64_t ldb,
                         float *c, int64_t ldc, int64_t depth) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        product<ADD, 4, N>(a + r * lda, lda, b, ldb, c + r * ldc, ldc, depth);
    for (; r < rows; ++r) product<ADD, 1, N>(a + r * lda, lda, b, ldb, c + r * ldc, ldc, depth);
}

// n is a multiple of W. Shared by all dtypes, so never inlined.
template <bool ADD>
__attribute__((noinline)) void matrix_product(int64_t rows, const float *a, int64_t lda,
                                              const float *b, int64_t ldb, float *c, int64_t ldc,
                                              int64_t n, int64_t depth) {
    int64_t i = 0;
    for (; i + COLUMNS * W <= n; i += COLUMNS * W)
        product_rows<ADD, COLUMNS>(rows, a, lda, b + i, ldb, c + i, ldc, depth);
    for (; i < n; i += W) product_rows<ADD, 1>(rows, a, lda, b + i, ldb, c + i, ldc, depth);
}

// The products of a task in float32. Layouts: queries [ABREAST, dim], keys [dim, BLOCK_KEYS],
// values [BLOCK_KEYS, value_width], weights [ABREAST, BLOCK_KEYS].
template <class T>
struct Floats {
    static void begin(char *) {}
    static void end(const char *) {}

    static int64_t query_width(int64_t dim) { return dim; }
    static int64_t value_width(int64_t dim) { return rounded_up(dim, W); }
    using Query = float;
    static int64_t key_bytes(int64_t dim) { return 4 * dim * BLOCK_KEYS; }
    static int64_t value_bytes(int64_t dim) { return 4 * BLOCK_KEYS * value_width(dim); }

    static void pack_query(const T *from, int64_t dim, float *to) {
        for (int64_t i = 0; i < dim; i += W) {
            const int n = dim - i < W ? static_cast<int>(dim - i) : W;
            put(to + i, take(from + i, n), n);
        }
    }
    // n <= BLOCK_KEYS keys; the rest are zero, never what lies in their slots.
    static void pack_keys(const T *const *key, int64_t n, int64_t dim, char *to) {
        float *out = reinterpret_cast<float *>(to);
        alignas(64) float one[WIDEST];
        for (int64_t k = 0; k < BLOCK_KEYS; ++k) {
            if (k < n) pack_query(key[k], dim, one);
            for (int64_t i = 0; i < dim; ++i) out[i * BLOCK_KEYS + k] = k < n ? one[i] : 0.0f;
        }
    }
    static void pack_values(const T *const *value, int64_t n, int64_t dim, char *to) {
        float *out = reinterpret_cast<float *>(to);
        const int64_t width = value_width(dim);
        for (int64_t k = 0; k < BLOCK_KEYS; ++k) {
            for (int64_t i = 0; i < width; i += W) {
                const int left = dim - i < W ? static_cast<int>(dim - i) : W;
                store(out + k * width + i, k < n ? take(value[k] + i, left) : set(0.0f));
            }
        }
    }
    static void scores(int64_t rows, const float *q, int64_t dim, const char *keys, float *s) {
        matrix_product<false>(rows, q, dim, reinterpret_cast<const float *>(keys), BLOCK_KEYS, s,
                              BLOCK_KEYS, BLOCK_KEYS, dim);
    }
    // Weights stay where the scores were.
    static void keep_weight(float *at, vf weight, char *) { store(at, weight); }
    static void weighted(int64_t rows, const float *s, const char *, const char *values,
                         int64_t dim, float *o) {
        const int64_t width = value_width(dim);
        matrix_product<true>(rows, s, BLOCK_KEYS, reinterpret_cast<const float *>(values), width,
                             o, width, width, BLOCK_KEYS);
    }
};

// Bytes a thread needs for a task. Order: queries, keys, values, scores, weights, O, largest, sums.
template <class P>
struct Room {
    int64_t queries, keys, values, scores, weights, o, most, total, end;

    Room(const TsArena &a, int64_t block) {
        const int64_t rows = a.heads / a.kv_heads * block, dim = a.head_dim;
        queries = 0;
        keys = rounded_up(
            queries + rows * P::query_width(dim) * static_cast<int64_t>(sizeof(typename P::Query)),
            64);
        values = rounded_up(keys + P::key_bytes(dim), 64);
        scores = rounded_up(values + P::value_bytes(dim), 64);
        weights = scores + 4 * ABREAST * BLOCK_KEYS;
        o = weights + 2 * ABREAST * BLOCK_KEYS;
        most = o + 4 * rows * P::value_width(dim);
        total = rounded_up(most + 4 * rows, 64);
        end = rounded_up(total + 4 * rows * W, 64);
    }
};

// Scores of a tile's rows become weights; sums and O follow the largest score. `seen`: keys of the
// block that the first row may see, one more for each row after it.
template <class P, class T>
void soften(int64_t rows, float *s, char *weights, int64_t seen, float scale, float *most,
            float *total, float *o, int64_t width) {
    const auto valid_of = [&](int64_t r) {
        const int64_t n = seen + r;
        return static_cast<int>(n < 0 ? 0 : n < BLOCK_KEYS ? n : BLOCK_KEYS);
    };
    const Weight<T> weight_of(scale);
    float before[ABREAST];
    for (int64_t r = 0; r < rows; ++r) {
        float *row = s + r * BLOCK_KEYS;
        const int valid = valid_of(r);
        vf best = set(-__builtin_inff());
        for (int64_t i = 0; i < BLOCK_KEYS; i += W) {
            vf one = load(row + i);
            if (valid < BLOCK_KEYS)
                one = first_lanes(one, valid - static_cast<int>(i), -__builtin_inff());
            best = larger(best, one);
        }
        const float found = largest(best);
        before[r] = most[r];
        most[r] = found > most[r] ? found : most[r];
    }
    for (int64_t r = 0; r < rows; ++r) {
        float *row = s + r * BLOCK_KEYS;
        const int valid = valid_of(r);
        vf sum_of = load(total + r * W);
        if (most[r] != before[r]) {
            const vf factor = weight_of(set(before[r]), most[r]);
            sum_of = sum_of * factor;
            for (int64_t i = 0; i < width; i += W)
                store(o + r * width + i, load(o + r * width + i) * factor);
        }
        for (int64_t i = 0; i < BLOCK_KEYS; i += W) {
            vf weight = weight_of(load(row + i), most[r]);
            if (valid < BLOCK_KEYS)
                weight = first_lanes(weight, valid - static_cast<int>(i), 0.0f);
            sum_of = sum_of + weight;
            P::keep_weight(row + i, weight, weights + 2 * (r * BLOCK_KEYS + i));
        }
        store(total + r * W, sum_of);
    }
}

// Queries first .. first + count of a sequence that starts at `start`, for one KV head. q, out: the
// sequence's first row, `q_width` and heads x dim elements a row.
template <class P, class T>
void prefill_block(const TsArena &a, const Keys<T> &keys, const T *q, int64_t q_width, T *out,
                   int64_t start, int64_t first, int64_t count, int64_t kv_head, char *room) {
    const int64_t group = a.heads / a.kv_heads, dim = a.head_dim;
    const int64_t block = rounded_up(count, ABREAST);
    const Room<P> at(a, block);
    const int64_t q_step = P::query_width(dim), width = P::value_width(dim);
    auto *queries = reinterpret_cast<typename P::Query *>(room + at.queries);
    auto *s = reinterpret_cast<float *>(room + at.scores);
    auto *o = reinterpret_cast<float *>(room + at.o);
    auto *most = reinterpret_cast<float *>(room + at.most);
    auto *total = reinterpret_cast<float *>(room + at.total);
    memset(room + at.queries, 0, static_cast<size_t>(at.keys - at.queries));
    memset(o, 0, static_cast<size_t>(at.most - at.o));
    memset(total, 0, static_cast<size_t>(at.end - at.total));
    for (int64_t g = 0; g < group; ++g) {
        for (int64_t t = 0; t < count; ++t) {
            P::pack_query(q + (first + t) * q_width + (kv_head * group + g) * dim, dim,
                          queries + (g * block + t) * q_step);
            most[g * block + t] = -__builtin_inff();
        }
    }
    const int64_t end = start + first + count;
    const T *key[BLOCK_KEYS], *value[BLOCK_KEYS];
    for (int64_t from = 0; from < end; from += BLOCK_KEYS) {
        const int64_t n = end - from < BLOCK_KEYS ? end - from : BLOCK_KEYS;
        for (int64_t k = 0; k < n; ++k) {
            key[k] = keys.key(from + k) + kv_head * dim;
            value[k] = key[k] + keys.width;
        }
        P::pack_keys(key, n, dim, room + at.keys);
        P::pack_values(value, n, dim, room + at.values);
        for (int64_t g = 0; g < group; ++g) {
            for (int64_t t = 0; t < count; t += ABREAST) {
                const int64_t rows = count - t < ABREAST ? count - t : ABREAST, row = g * block + t;
                // Keys of this block that the tile's first row, and its last, may see.
                const int64_t seen = start + first + t + 1 - from;
                if (seen + rows - 1 <= 0) continue;
                P::scores(rows, queries + row * q_step, dim, room + at.keys, s);
                soften<P, T>(rows, s, room + at.weights, seen, a.scale, most + row, total + row * W,
                          o + row * width, width);
                P::weighted(rows, s, room + at.weights, room + at.values, dim, o + row * width);
            }
        }
    }
    for (int64_t g = 0; g < group; ++g) {
        for (int64_t t = 0; t < count; ++t) {
            const int64_t row = g * block + t;
            const vf inverse = set(1.0f / sum(load(total + row * W)));
            T *to = out + (first + t) * a.heads * dim + (kv_head * group + g) * dim;
            over(dim, [&](int64_t i, int m) {
                put(to + i, load(o + row * width + i) * inverse, m);
            });
        }
    }
}

}  // namespace

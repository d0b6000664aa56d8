// LoRA of long segments, as two matrix products in bf16 tiles: A is packed and Bt interleaved once
// for all rows of a thread's share. t is rounded to bf16 between them, sums are fp32.
//
// A tile holds 16 rows of 64 bytes. tdpbf16ps wants its second operand with two neighbours in K side
// by side in a lane, which is what the packing does. Whole tiles only: a last, partial one is shifted
// back over rows that are done, and its answers for those are dropped. Columns of rank beyond the
// adapter's are zero.
#include <string.h>

#include "lora.h"
#include "tiles.h"

namespace {

constexpr int64_t CHUNK = 512;  // columns of y that are packed at once

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Columns of a 16 x 16 matrix of 32-bit lanes become its rows.
static inline void transpose(__m512i v[16]) {
    __m512i w[16];
    for (int i = 0; i < 16; i += 2) {
        w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_unpacklo_epi64(w[i], w[i + 2]);
        v[i + 1] = _mm512_unpackhi_epi64(w[i], w[i + 2]);
        v[i + 2] = _mm512_unpacklo_epi64(w[i + 1], w[i + 3]);
        v[i + 3] = _mm512_unpackhi_epi64(w[i + 1], w[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        w[i] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0x88);
        w[i + 4] = _mm512_shuffle_i32x4(v[i], v[i + 4], 0xdd);
        w[i + 8] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0x88);
        w[i + 12] = _mm512_shuffle_i32x4(v[i + 8], v[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        v[i] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_i32x4(w[i], w[i + 8], 0xdd);
    }
}

static inline __m512i lanes(const char *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

// Rows j .. j + 16 of A, those beyond the rank as zeros, as `width / 32` tiles.
static void pack_a(const TsPair &pair, int64_t j, int64_t width, char *packed) {
    const char *row[TILE] = {};
    for (int64_t i = 0; i < least(TILE, pair.rank - j); i++) row[i] = row_of(pair.a, j + i);
    for (int64_t k = 0; k < width; k += DEEP, packed += TILE_BYTES) {
        __m512i v[TILE];
        for (int i = 0; i < TILE; i++)
            v[i] = row[i] ? _mm512_loadu_si512(row[i] + 2 * k) : _mm512_setzero_si512();
        transpose(v);
        for (int i = 0; i < TILE; i++) _mm512_storeu_si512(packed + 64 * i, v[i]);
    }
}

// Columns from .. to of Bt, ranks in twos, `t_width / 32` tiles of 16 columns after each other. Row
// by row: memory is read in long runs.
static void pack_bt(const TsPair &pair, int64_t from, int64_t to, int64_t t_width, char *packed) {
    const __m512i zero = _mm512_setzero_si512();
    for (int64_t j = 0; j < t_width; j += 2) {
        const char *even = j < pair.rank ? row_of(pair.bt, j) : nullptr;
        const char *odd = j + 1 < pair.rank ? row_of(pair.bt, j + 1) : nullptr;
        char *put = packed + 32 * j;
        for (int64_t c = from; c < to; c += TILE, put += 2 * TILE * t_width) {
            __m512i both = zero;
            if (even) both = lanes(even + 2 * c);
            if (odd) both = _mm512_or_si512(both, _mm512_slli_epi32(lanes(odd + 2 * c), 16));
            _mm512_storeu_si512(put, both);
        }
    }
}

static inline __m512 widened(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}

static inline __m256i narrowed(__m512 v) { return (__m256i)_mm512_cvtneps_pbh(v); }

// Where the tile that covers rows r .. r + 16 of `count` begins.
static inline int64_t begin_of(int64_t r, int64_t count) { return least(r, count - TILE); }

static void store_tiles(int64_t tiles, float (*c)[TILE * TILE]) {
    _tile_stored(0, c[0], 64);
    if (tiles > 1) _tile_stored(1, c[1], 64);
    if (tiles > 2) _tile_stored(2, c[2], 64);
    if (tiles > 3) _tile_stored(3, c[3], 64);
}

// Tiles 0 .. N of C = x[n] . packed, over `width`.
template <int N>
static void product(const char *const *x, int64_t stride, const char *packed, int64_t width) {
    written();
    _tile_zero(0);
    if (N > 1) _tile_zero(1);
    if (N > 2) _tile_zero(2);
    if (N > 3) _tile_zero(3);
    for (int64_t k = 0; k < width; k += DEEP, packed += TILE_BYTES) {
        _tile_loadd(4, packed, 64);
        _tile_loadd(5, x[0] + 2 * k, stride);
        _tile_dpbf16ps(0, 5, 4);
        if (N > 1) {
            _tile_loadd(6, x[1] + 2 * k, stride);
            _tile_dpbf16ps(1, 6, 4);
        }
        if (N > 2) {
            _tile_loadd(5, x[2] + 2 * k, stride);
            _tile_dpbf16ps(2, 5, 4);
        }
        if (N > 3) {
            _tile_loadd(6, x[3] + 2 * k, stride);
            _tile_dpbf16ps(3, 6, 4);
        }
    }
}

static void product_of(int64_t tiles, const char *const *x, int64_t stride, const char *packed,
                       int64_t width, float (*c)[TILE * TILE]) {
    if (tiles == 4)
        product<4>(x, stride, packed, width);
    else if (tiles == 3)
        product<3>(x, stride, packed, width);
    else if (tiles == 2)
        product<2>(x, stride, packed, width);
    else
        product<1>(x, stride, packed, width);
    store_tiles(tiles, c);
}

// Tiles 0 .. N of C = t . packed[n], `each` bytes apart, over the rank.
template <int N>
static void across(const char *t, const char *packed, int64_t each, int64_t t_width) {
    written();
    _tile_zero(0);
    if (N > 1) _tile_zero(1);
    if (N > 2) _tile_zero(2);
    if (N > 3) _tile_zero(3);
    for (int64_t k = 0; k < t_width; k += DEEP, packed += TILE_BYTES) {
        _tile_loadd(4, t + 2 * k, 2 * t_width);
        _tile_loadd(5, packed, 64);
        _tile_dpbf16ps(0, 4, 5);
        if (N > 1) {
            _tile_loadd(6, packed + each, 64);
            _tile_dpbf16ps(1, 4, 6);
        }
        if (N > 2) {
            _tile_loadd(5, packed + 2 * each, 64);
            _tile_dpbf16ps(2, 4, 5);
        }
        if (N > 3) {
            _tile_loadd(6, packed + 3 * each, 64);
            _tile_dpbf16ps(3, 4, 6);
        }
    }
}

static void across_of(int64_t tiles, const char *t, const char *packed, int64_t each,
                      int64_t t_width, float (*c)[TILE * TILE]) {
    if (tiles == 4)
        across<4>(t, packed, each, t_width);
    else if (tiles == 3)
        across<3>(t, packed, each, t_width);
    else if (tiles == 2)
        across<2>(t, packed, each, t_width);
    else
        across<1>(t, packed, each, t_width);
    store_tiles(tiles, c);
}

// 16 rows of 32 columns of y += two tiles side by side, the first `done` rows left as they are. All
// rows are read before any is written: rows a multiple of 2,048 bytes apart look alike to the CPU,
// which would make each read wait for the write before.
static void add_two(char *y, int64_t stride, int64_t done, const float *left, const float *right) {
    __m512i before[TILE];
    for (int64_t i = 0; i < TILE; i++) before[i] = _mm512_loadu_si512(y + i * stride);
    for (int64_t i = done; i < TILE; i++) {
        const __m512 lo = widened(_mm512_castsi512_si256(before[i]));
        const __m512 hi = widened(_mm512_extracti64x4_epi64(before[i], 1));
        const __m512 l = _mm512_add_ps(lo, _mm512_load_ps(left + i * TILE));
        const __m512 r = _mm512_add_ps(hi, _mm512_load_ps(right + i * TILE));
        _mm512_storeu_si512(y + i * stride, (__m512i)_mm512_cvtne2ps_pbh(r, l));
    }
}

static void add_one(char *y, int64_t stride, int64_t done, const float *tile) {
    for (int64_t i = done; i < TILE; i++) {
        __m256i *put = (__m256i *)(y + i * stride);
        const __m512 before = widened(_mm256_loadu_si256(put));
        _mm256_storeu_si256(put, narrowed(_mm512_add_ps(before, _mm512_load_ps(tile + i * TILE))));
    }
}

}  // namespace

void tiles_begin(char saved[64]) {
    keep_tiles(saved);
    shape_tiles();
}

void tiles_end(const char saved[64]) { put_tiles_back(saved); }

void tall_shrink(const TsPair &pair, int64_t width, int64_t count, int64_t from, int64_t to,
                 const char *x, int64_t stride, char *t, int64_t t_width, char *packed) {
    alignas(64) float c[4][TILE * TILE];
    for (int64_t j = 0; j < pair.rank; j += TILE) {
        pack_a(pair, j, width, packed);
        // t is as wide as whole tiles of the second product: what A does not reach is zero.
        const bool last = j + TILE >= pair.rank;
        const int64_t rest = last ? t_width - j - TILE : 0;
        for (int64_t r = from; r < to; r += 4 * TILE) {
            const int64_t tiles = least(4, (to - r + TILE - 1) / TILE);
            const char *rows[4];
            for (int64_t i = 0; i < tiles; i++)
                rows[i] = x + begin_of(r + i * TILE, count) * stride;
            product_of(tiles, rows, stride, packed, width, c);
            for (int64_t row = r; row < least(to, r + 4 * TILE); row++) {
                const int64_t i = (row - r) / TILE;
                const float *found = c[i] + (row - begin_of(r + i * TILE, count)) * TILE;
                char *put = t + 2 * (row * t_width + j);
                _mm256_storeu_si256((__m256i *)put, narrowed(_mm512_load_ps(found)));
                if (rest > 0) memset(put + 2 * TILE, 0, (size_t)(2 * rest));
            }
        }
    }
}

void tall_expand(const TsPair &pair, int64_t out, int64_t count, int64_t from, int64_t to, char *y,
                 int64_t stride, const char *t, int64_t t_width, char *packed) {
    alignas(64) float c[4][TILE * TILE];
    const int64_t each = t_width * 2 * TILE;  // bytes of 16 packed columns
    for (int64_t first = 0; first < out; first += CHUNK) {
        const int64_t stop = least(out, first + CHUNK);
        pack_bt(pair, first, stop, t_width, packed);
        for (int64_t r = from; r < to; r += TILE) {
            const int64_t begin = begin_of(r, count), done = r - begin;
            const char *row = t + 2 * begin * t_width;
            for (int64_t column = first; column < stop; column += 4 * TILE) {
                const int64_t tiles = least(4, (stop - column) / TILE);
                across_of(tiles, row, packed + (column - first) / TILE * each, each, t_width, c);
                char *put = y + begin * stride + 2 * column;
                for (int64_t i = 0; i + 1 < tiles; i += 2)
                    add_two(put + 2 * i * TILE, stride, done, c[i], c[i + 1]);
                if (tiles % 2) add_one(put + 2 * (tiles - 1) * TILE, stride, done, c[tiles - 1]);
            }
        }
    }
}

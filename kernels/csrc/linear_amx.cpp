// A bf16 linear in tiles. W lies packed in the order it is read in: 32 outputs at a time, all of K,
// two tiles of 1 KiB (16 outputs by 32 of K, two neighbours in K side by side) after each other. So
// a decode step is one stream through memory. 32 rows of x, as they lie, are multiplied with it at
// a time: four tiles of sums. A row's bits do not depend on the other rows.
#include <omp.h>

#include "linear.h"
#include "tiles.h"

namespace {

constexpr int64_t ROWS = 32;
constexpr int64_t AHEAD = 8 * TILE_BYTES;

// Tiles for so many rows of x: 16 or fewer of them in sums 0, 1 and tile 4, the rest in 2, 3 and 5.
static void configure(int64_t rows) {
    const uint8_t top = rows < 16 ? (uint8_t)rows : 16;
    const uint8_t low = rows > 16 ? (uint8_t)(rows - 16) : 1;
    shape_tiles({top, top, low, low, top, low, 16, 16});
}

static inline __m512 widened(const uint16_t *p) {
    const __m256i half = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

// Sums of `rows` rows by C tiles of 16 outputs, a tile 256 floats on, to y. bias: of these outputs.
template <int C>
static inline void put(const float *sums, int64_t rows, const uint16_t *bias, uint16_t *y,
                       int64_t stride) {
    const __m512 none = _mm512_setzero_ps();
    const __m512 first = bias ? widened(bias) : none;
    const __m512 second = bias && C > 1 ? widened(bias + 16) : none;
    for (int64_t r = 0; r < rows; r++, sums += 16, y += stride) {
        const __m512 low = _mm512_add_ps(_mm512_load_ps(sums), first);
        if (C > 1) {
            const __m512 high = _mm512_add_ps(_mm512_load_ps(sums + 256), second);
            _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(high, low));
        } else {
            _mm256_storeu_si256((__m256i *)y, (__m256i)_mm512_cvtneps_pbh(low));
        }
    }
}

// R tiles of rows by C tiles of outputs. x, w: bytes; `stride` a row of x.
template <int R, int C, bool FIRST>
static inline void sums_of(const char *x, int64_t stride, const char *w, int64_t depth,
                           float *sums) {
    _tile_zero(0);
    if (C > 1) _tile_zero(1);
    if (R > 1) _tile_zero(2);
    if (R > 1 && C > 1) _tile_zero(3);
    for (int64_t k = 0; k < depth; k++, w += C * TILE_BYTES, x += 2 * DEEP) {
        // Tile loads are too few at a time for the memory's delay. Later rows find w in the cache.
        if (FIRST)
            for (int64_t i = 0; i < C * TILE_BYTES; i += 64) _mm_prefetch(w + AHEAD + i, _MM_HINT_T0);
        _tile_loadd(4, x, stride);
        _tile_loadd(6, w, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (C > 1) {
            _tile_loadd(7, w + TILE_BYTES, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (R > 1) {
            _tile_loadd(5, x + 16 * stride, stride);
            _tile_dpbf16ps(2, 5, 6);
            if (C > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    if (C > 1) _tile_stored(1, sums + 256, 64);
    if (R > 1) _tile_stored(2, sums + 512, 64);
    if (R > 1 && C > 1) _tile_stored(3, sums + 768, 64);
}

// Rows from .. from + count, outputs first .. first + 16 C.
template <int R, int C>
static void block(const TsLinear &l, int64_t from, int64_t count, int64_t first, const char *w,
                  float *sums) {
    const int64_t stride = l.in * 2, depth = l.in / DEEP;
    const char *x = (const char *)l.x + from * stride;
    if (from) {
        sums_of<R, C, false>(x, stride, w, depth, sums);
    } else {
        sums_of<R, C, true>(x, stride, w, depth, sums);
    }
    const uint16_t *bias = l.bias ? (const uint16_t *)l.bias + first : nullptr;
    uint16_t *y = (uint16_t *)l.y + from * l.out + first;
    put<C>(sums, count < 16 ? count : 16, bias, y, l.out);
    if (R > 1) put<C>(sums + 512, count - 16, bias, y + 16 * l.out, l.out);
}

}  // namespace

void linear_amx(const TsLinear &l) {
    const int64_t blocks = (l.out + 31) / 32;
#pragma omp parallel num_threads(l.threads)
    {
        const int64_t me = omp_get_thread_num(), all = omp_get_num_threads();
        char saved[64];
        alignas(64) float sums[1024];
        int64_t configured = 0;
        keep_tiles(saved);
        for (int64_t b = blocks * me / all; b < blocks * (me + 1) / all; b++) {
            const bool wide = l.out - 32 * b >= 32;
            const char *w = (const char *)l.packed + b * 64 * l.in;
            for (int64_t r = 0; r < l.rows; r += ROWS) {
                const int64_t rows = l.rows - r < ROWS ? l.rows - r : ROWS;
                if (rows != configured) configure(configured = rows);
                if (rows > 16) {
                    wide ? block<2, 2>(l, r, rows, 32 * b, w, sums)
                         : block<2, 1>(l, r, rows, 32 * b, w, sums);
                } else {
                    wide ? block<1, 2>(l, r, rows, 32 * b, w, sums)
                         : block<1, 1>(l, r, rows, 32 * b, w, sums);
                }
            }
        }
        put_tiles_back(saved);
    }
}

// The output head in bf16 tiles: w is read as it lies, x as three bf16 parts that add up to it
// exactly. Each product is then exact, and sums are fp32.
//
// A tile holds 16 rows of 64 bytes. w's rows are the first operand; the second wants two neighbours
// in K side by side in a lane, so x is packed so, once a call. 32 rows of w are multiplied with 32
// of x at a time: four tiles of sums.
#include <omp.h>
#include <string.h>

#include "head.h"
#include "tiles.h"

namespace {

constexpr int64_t PARTS = 3;   // 24 bits of x, 8 a part
constexpr int64_t BLOCK = 32;  // rows of w, and of x, at a time

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

// Tiles of x for rows r .. r + 16: by K, then by part. Rows beyond the last are zeros.
static void pack(const TsHead &h, int64_t r, char *packed) {
    for (int64_t k = 0; k < h.width; k += DEEP, packed += PARTS * 2 * TILE_BYTES) {
        for (int64_t row = r; row < r + TILE; row++) {
            uint16_t *put = (uint16_t *)packed + 2 * (row - r);
            for (int64_t i = 0; i < DEEP; i++) {
                float left = row < h.rows ? ((const float *)h.x)[row * h.width + k + i] : 0.0f;
                for (int64_t part = 0; part < PARTS; part++) {
                    uint32_t bits;
                    memcpy(&bits, &left, sizeof bits);
                    put[part * TILE_BYTES + (i / 2) * DEEP + i % 2] = (uint16_t)(bits >> 16);
                    bits &= 0xffff0000u;
                    float taken;
                    memcpy(&taken, &bits, sizeof taken);
                    left -= taken;
                }
            }
        }
    }
}

// Sums of w's rows at `w` and 16 rows on with one or two tiles of rows at `x`, into tiles 0 .. 3.
template <bool BOTH>
static inline void multiply(const TsHead &h, const char *w, const char *x, bool ahead) {
    const int64_t stride = 2 * h.width;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < stride; k += 2 * DEEP, x += PARTS * 2 * TILE_BYTES) {
        // w is read once, in order, by 32 rows at a time: too many streams for the CPU to foresee.
        if (ahead)
            for (int64_t i = 0; i < BLOCK; i++)
                _mm_prefetch(w + k + (BLOCK + i) * stride, _MM_HINT_T0);
        _tile_loadd(4, w + k, stride);
        _tile_loadd(5, w + k + TILE * stride, stride);
        for (int64_t part = 0; part < PARTS; part++) {
            _tile_loadd(6, x + 2 * part * TILE_BYTES, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(2, 5, 6);
            if (BOTH) {
                _tile_loadd(7, x + (2 * part + 1) * TILE_BYTES, 64);
                _tile_dpbf16ps(1, 4, 7);
                _tile_dpbf16ps(3, 5, 7);
            }
        }
    }
}

// The sums of 32 rows of w with a block of x: [2 half + side][row of w][row of x].
struct Sums {
    alignas(64) float of[4][TILE * TILE];
};

static void sums_of(const TsHead &h, int64_t v, int64_t block, const char *packed, bool ahead,
                    Sums &sums) {
    const char *w = (const char *)h.w + 2 * v * h.width;
    const char *x = packed + block * (h.width / DEEP * PARTS * 2 * TILE_BYTES);
    written();
    if (h.rows - block * BLOCK > TILE)
        multiply<true>(h, w, x, ahead);
    else
        multiply<false>(h, w, x, ahead);
    _tile_stored(0, sums.of[0], 64);
    _tile_stored(1, sums.of[1], 64);
    _tile_stored(2, sums.of[2], 64);
    _tile_stored(3, sums.of[3], 64);
    written();
}

static inline __m512i lanes() {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

// 16 rows of w for one row of x, `at` of its block.
static inline __m512 column(const Sums &sums, int64_t half, int64_t at) {
    const float *from = sums.of[2 * half + at / TILE] + at % TILE;
    return _mm512_i32gather_ps(_mm512_slli_epi32(lanes(), 4), from, 4);
}

// Logits to where they belong. Of w's rows only those from `first` on: the others are done.
static void put(const TsHead &h, int64_t v, int64_t first, int64_t block, const Sums &sums) {
    for (int64_t at = 0; at < least(BLOCK, h.rows - block * BLOCK); at++) {
        float *out = (float *)h.out + (block * BLOCK + at) * h.out_stride + v;
        for (int64_t half = 0; half < 2; half++) {
            const int64_t done = least(TILE, first - v - half * TILE);
            const __mmask16 fresh = _mm512_cmpge_epi32_mask(lanes(), _mm512_set1_epi32((int)done));
            _mm512_mask_storeu_ps(out + half * TILE, fresh, column(sums, half, at));
        }
    }
}

// A row's largest logits so far, lane by lane, and their ids; one that is NaN stays.
struct Best {
    __m512 value;
    __m512i id;
};

static void take(const TsHead &h, int64_t v, int64_t block, const Sums &sums, Best *best) {
    for (int64_t at = 0; at < least(BLOCK, h.rows - block * BLOCK); at++) {
        Best &mine = best[block * BLOCK + at];
        for (int64_t half = 0; half < 2; half++) {
            const __m512 found = column(sums, half, at);
            const __mmask16 better = _mm512_cmp_ps_mask(found, mine.value, _CMP_GT_OQ) |
                                     _mm512_cmp_ps_mask(found, found, _CMP_UNORD_Q);
            const __m512i id =
                _mm512_add_epi32(lanes(), _mm512_set1_epi32((int)(v + half * TILE)));
            mine.value = _mm512_mask_mov_ps(mine.value, better, found);
            mine.id = _mm512_mask_mov_epi32(mine.id, better, id);
        }
    }
}

// Over all threads and lanes; of equal ones the smallest id.
static void decide(const Best *best, int64_t stride, int64_t threads, float *value, int64_t *id) {
    *value = -__builtin_inff();
    *id = -1;
    for (int64_t t = 0; t < threads; t++) {
        alignas(64) float values[TILE];
        alignas(64) int32_t ids[TILE];
        _mm512_store_ps(values, best[t * stride].value);
        _mm512_store_si512(ids, best[t * stride].id);
        for (int64_t i = 0; i < TILE; i++) {
            if (ids[i] < 0) continue;
            const bool ahead = *id < 0 || values[i] > *value || values[i] != values[i] ||
                               (values[i] == *value && ids[i] < *id);
            if (!ahead || (*id >= 0 && *value != *value)) continue;
            *value = values[i];
            *id = ids[i];
        }
    }
}

// x in its parts, by all threads of a parallel region.
static void pack_all(const TsHead &h, char *packed) {
    const int64_t block_bytes = h.width / DEEP * PARTS * 2 * TILE_BYTES;
#pragma omp for schedule(static)
    for (int64_t tile = 0; tile < (h.rows + TILE - 1) / TILE; tile++)
        pack(h, tile * TILE, packed + tile / 2 * block_bytes + tile % 2 * TILE_BYTES);
}

}  // namespace

void head_amx(const TsHead &h) {
    const int64_t blocks = (h.rows + BLOCK - 1) / BLOCK, chunks = (h.vocab + BLOCK - 1) / BLOCK;
    char *const packed = (char *)h.scratch;
#pragma omp parallel num_threads(h.threads)
    {
        pack_all(h, packed);
        char saved[64];
        keep_tiles(saved);
        shape_tiles();
        Sums sums;
#pragma omp for schedule(static)
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            const int64_t first = chunk * BLOCK, v = least(first, h.vocab - BLOCK);
            for (int64_t block = 0; block < blocks; block++) {
                sums_of(h, v, block, packed, block == 0 && chunk + 2 < chunks, sums);
                put(h, v, first, block, sums);
            }
        }
        put_tiles_back(saved);
    }
}

void head_best_amx(const TsHead &h, float *best, int64_t *ids) {
    const int64_t blocks = (h.rows + BLOCK - 1) / BLOCK, chunks = (h.vocab + BLOCK - 1) / BLOCK;
    char *const packed = (char *)h.scratch;
    const int64_t whole = blocks * BLOCK;
    Best *const all = (Best *)(packed + whole * h.width * 2 * PARTS);
#pragma omp parallel num_threads(h.threads)
    {
        Best *const mine = all + omp_get_thread_num() * whole;
        for (int64_t row = 0; row < whole; row++)
            mine[row] = {_mm512_set1_ps(-__builtin_inff()), _mm512_set1_epi32(-1)};
        pack_all(h, packed);
        char saved[64];
        keep_tiles(saved);
        shape_tiles();
        Sums sums;
#pragma omp for schedule(static)
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            const int64_t v = least(chunk * BLOCK, h.vocab - BLOCK);
            for (int64_t block = 0; block < blocks; block++) {
                sums_of(h, v, block, packed, block == 0 && chunk + 2 < chunks, sums);
                take(h, v, block, sums, mine);
            }
        }
        put_tiles_back(saved);
        const int64_t threads = omp_get_num_threads();
#pragma omp for schedule(static)
        for (int64_t row = 0; row < h.rows; row++)
            decide(all + row, whole, threads, best + row, ids + row);
    }
}

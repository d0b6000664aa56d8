// The products of prefill attention on AMX tiles of bfloat16 (`attention_prefill.h` has the rest).
//
// A tile of B holds pairs: row i, column j has elements 2i and 2i + 1 of column j side by side.
#pragma once

#include "attention_prefill.h"
#include "tiles.h"

namespace {

struct Tiles {
    using Query = uint16_t;
    // Dims of a tile of scores' depth, and of a tile of O.
    static int64_t query_width(int64_t dim) { return rounded_up(dim, 32); }
    static int64_t value_width(int64_t dim) { return rounded_up(dim, 16); }
    static int64_t key_bytes(int64_t dim) { return 2 * query_width(dim) * BLOCK_KEYS; }
    static int64_t value_bytes(int64_t dim) { return 2 * value_width(dim) * BLOCK_KEYS; }

    static void begin(char saved[64]) {
        keep_tiles(saved);
        shape_tiles();
    }
    static void end(const char saved[64]) { put_tiles_back(saved); }

    static void pack_query(const bf16 *from, int64_t dim, uint16_t *to) {
        memcpy(to, from, static_cast<size_t>(dim) * 2);  // what follows is zero already
    }
    // [tile of 16 keys][32 dims] tiles of pairs of dims; absent keys and dims are zero.
    static void pack_keys(const bf16 *const *key, int64_t n, int64_t dim, char *to) {
        uint32_t *out = reinterpret_cast<uint32_t *>(to);
        const int64_t pairs = query_width(dim) / 2;
        for (int64_t k = 0; k < BLOCK_KEYS; ++k) {
            uint32_t *column = out + k / 16 * pairs * 16 + k % 16;
            const int64_t here = k < n ? dim / 2 : 0;
            const char *from = k < n ? reinterpret_cast<const char *>(key[k]) : nullptr;
            for (int64_t i = 0; i < here; ++i) {
                uint32_t pair;
                memcpy(&pair, from + 4 * i, 4);
                column[i * 16] = pair;
            }
            for (int64_t i = here; i < pairs; ++i) column[i * 16] = 0;
        }
    }
    // [tile of 16 dims][32 keys] tiles of pairs of keys.
    static void pack_values(const bf16 *const *value, int64_t n, int64_t dim, char *to) {
        for (int64_t k = 0; k < BLOCK_KEYS; k += 2) {
            for (int64_t i = 0; i < dim; i += 16) {
                const __m512i none = _mm512_setzero_si512();
                const __m512i first = k < n ? sixteen(value[k] + i, dim - i) : none;
                const __m512i second = k + 1 < n ? sixteen(value[k + 1] + i, dim - i) : none;
                char *at = to + i / 16 * BLOCK_KEYS * 32 + k * 32;
                _mm512_store_si512(at, _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
            }
        }
    }
    static __m512i sixteen(const bf16 *from, int64_t left) {
        const __mmask16 mask = left >= 16 ? 0xffff : static_cast<__mmask16>((1u << left) - 1);
        return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from));
    }

    static void scores(int64_t, const uint16_t *q, int64_t dim, const char *keys, float *s) {
        const int64_t width = query_width(dim), tile = width * 32;
        written();
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t i = 0; i < width; i += 32) {
            const char *at = keys + i * 32;
            _tile_loadd(4, q + i, width * 2);
            _tile_loadd(5, at, 64);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, at + tile, 64);
            _tile_dpbf16ps(1, 4, 6);
            _tile_loadd(5, at + 2 * tile, 64);
            _tile_dpbf16ps(2, 4, 5);
            _tile_loadd(6, at + 3 * tile, 64);
            _tile_dpbf16ps(3, 4, 6);
        }
        _tile_stored(0, s, 256);
        _tile_stored(1, s + 16, 256);
        _tile_stored(2, s + 32, 256);
        _tile_stored(3, s + 48, 256);
    }
    static void keep_weight(float *, vf weight, char *to) {
        store(reinterpret_cast<bf16 *>(to), weight);
    }
    static void weighted(int64_t, const float *, const char *weights, const char *values,
                         int64_t dim, float *o) {
        const int64_t tiles = value_width(dim) / 16, bytes = tiles * 64;
        written();
        for (int64_t i = 0; i < tiles; i += 4) {
            const int64_t left = tiles - i;
            const char *at = values + i * BLOCK_KEYS * 32;
            float *to = o + i * 16;
            _tile_loadd(0, to, bytes);
            if (left > 1) _tile_loadd(1, to + 16, bytes);
            if (left > 2) _tile_loadd(2, to + 32, bytes);
            if (left > 3) _tile_loadd(3, to + 48, bytes);
            for (int64_t k = 0; k < BLOCK_KEYS; k += 32, at += 1024) {
                _tile_loadd(4, weights + 2 * k, 2 * BLOCK_KEYS);
                _tile_loadd(5, at, 64);
                _tile_dpbf16ps(0, 4, 5);
                if (left > 1) {
                    _tile_loadd(6, at + BLOCK_KEYS * 32, 64);
                    _tile_dpbf16ps(1, 4, 6);
                }
                if (left > 2) {
                    _tile_loadd(5, at + 2 * BLOCK_KEYS * 32, 64);
                    _tile_dpbf16ps(2, 4, 5);
                }
                if (left > 3) {
                    _tile_loadd(6, at + 3 * BLOCK_KEYS * 32, 64);
                    _tile_dpbf16ps(3, 4, 6);
                }
            }
            _tile_stored(0, to, bytes);
            if (left > 1) _tile_stored(1, to + 16, bytes);
            if (left > 2) _tile_stored(2, to + 32, bytes);
            if (left > 3) _tile_stored(3, to + 48, bytes);
        }
    }
};

}  // namespace

// The CPU's tiles: eight of them, of rows of 64 bytes; their shapes set up and put back. Only for files
// that are compiled for them. Multiplies nothing.
#pragma once
#include "common.h"
#include "x86.h"

namespace {

constexpr int64_t TILE = 16;          // rows of a whole tile, and floats of its row
constexpr int64_t DEEP = 32;          // bf16 of a tile's row
constexpr int64_t TILE_BYTES = 1024;

struct alignas(64) TileShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

// Compilers' tile loads do not say which memory they read: what is to be read is written before this.
static inline void written() { asm volatile("" ::: "memory"); }

static inline void shape_tiles(const uint8_t (&rows)[8]) {
    TileShapes shapes = {};
    shapes.palette = 1;
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = rows[i];
    }
    written();
    _tile_loadconfig(&shapes);
}

// Whole tiles.
static inline void shape_tiles() { shape_tiles({16, 16, 16, 16, 16, 16, 16, 16}); }

// Whoever set tiles up on this thread may count on finding them so: other libraries keep theirs from
// call to call.
static inline void keep_tiles(char saved[64]) {
    _tile_storeconfig(saved);
    written();
}

static inline void put_tiles_back(const char saved[64]) {
    written();
    if (saved[0])
        _tile_loadconfig(saved);
    else
        _tile_release();
}

}  // namespace

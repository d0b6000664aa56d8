// Packs an adapter's file into its image, for the instruction set of the file that includes it. One
// thread, a little of the file at a time: what is read is still in the core's cache when it is
// checked, widened and stored, and no thread of a step is asked for.
#pragma once
#include <errno.h>
#include <unistd.h>

#include "pack.h"
#include "simd.h"

namespace {

// Fletcher's sums, of 64 bits in four lanes: any word that changes, and any two that change places,
// change them. As fast as memory is read.
struct Checksum {
    uint64_t sums[4] = {}, sums_of_sums[4] = {};

    void block(const char *p) {
        uint64_t words[4];
        memcpy(words, p, sizeof words);
        for (int i = 0; i < 4; ++i) sums[i] += words[i];
        for (int i = 0; i < 4; ++i) sums_of_sums[i] += sums[i];
    }
    void add(const char *p, int64_t bytes) {
        for (; bytes >= 32; bytes -= 32, p += 32) block(p);
        if (bytes) {
            char last[32] = {};
            memcpy(last, p, static_cast<size_t>(bytes));
            block(last);
        }
    }
    uint64_t whole() const {
        uint64_t all = 0;
        for (int i = 0; i < 4; ++i) {
            all = (all ^ sums[i]) * 0x9e3779b97f4a7c15u;
            all = (all ^ (all >> 29) ^ sums_of_sums[i]) * 0xbf58476d1ce4e5b9u;
        }
        return all ^ (all >> 32);
    }
};

inline int read_all(TsPack &pack, int64_t from, int64_t bytes, char *to) {
    while (bytes) {
        const ssize_t got = pread(static_cast<int>(pack.fd), to, static_cast<size_t>(bytes), from);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            pack.failed = errno;
            return 2;
        }
        if (!got) {
            pack.ended = from;
            return 1;
        }
        from += got, to += got, bytes -= got;
    }
    return 0;
}

// What is seen of a side's values: `strange` has a NaN once one was NaN or infinite.
struct Seen {
    vf strange = set(0.0f), most = set(0.0f);

    void look(vf v) {
        strange = fma(v, set(0.0f), strange);
        most = larger(absolute(v), most);
    }
    float told() const {
        const float none = sum(strange);
        return none == none ? largest(most) : none;
    }
};

// n stored values as floats: where they are, or in `room`.
using Widen = const float *(*)(const char *stored, int64_t n, float *room, Seen &seen);

inline const float *floats(const char *stored, int64_t n, float *, Seen &seen) {
    const float *from = reinterpret_cast<const float *>(stored);
    over(n, [&](int64_t i, int count) { seen.look(take(from + i, count)); });
    return from;
}
template <class S>
const float *widened_floats(const char *stored, int64_t n, float *room, Seen &seen) {
    const S *from = reinterpret_cast<const S *>(stored);
    Seen mine = seen;  // in registers: the stores below might change what is the caller's
    over(n, [&](int64_t i, int count) {
        const vf v = take(from + i, count);
        mine.look(v);
        put(room + i, v, count);
    });
    seen = mine;
    return room;
}

// p[0], p[step], ... as a vector.
inline vf gathered(const float *p, int64_t step) {
#if defined(__AVX2__)
    return vf{p[0],        p[step],     p[2 * step], p[3 * step],
              p[4 * step], p[5 * step], p[6 * step], p[7 * step]};
#else
    return vf{p[0], p[step], p[2 * step], p[3 * step]};
#endif
}

inline void clear(char *from, char *to) { memset(from, 0, static_cast<size_t>(to - from)); }

// A row's bytes after its n elements.
template <class T>
inline void clear_rest(T *row, int64_t n, int64_t row_bytes) {
    clear(reinterpret_cast<char *>(row + n), reinterpret_cast<char *>(row) + row_bytes);
}

// What no span covers.
inline void clear_between(const TsPack &pack) {
    char *done = pack.image;
    for (int64_t i = 0; i < pack.count; ++i) {
        const TsPackSide &side = pack.sides[i];
        for (int64_t s = side.first_span; s < side.first_span + side.spans; ++s) {
            char *const at = pack.image + pack.spans[s].at;
            clear(done, at);
            done = at + pack.spans[s].rows * side.row_bytes;
        }
    }
    clear(done, pack.image + pack.image_bytes);
}

// Rows first .. first + rows of a side, as they are stored, to the block's rows of a span.
template <class T>
void put_span(const TsPack &pack, const TsPackSide &side, const TsPackSpan &span, vf scale,
              const float *values, int64_t first, int64_t rows) {
    const int64_t end = span.first_row + span.rows, columns = side.columns;
    char *const image = pack.image + span.at;
    if (side.turned) {
        for (int64_t j = span.first_row; j < end; ++j) {
            T *to = reinterpret_cast<T *>(image + (j - span.first_row) * side.row_bytes) + first;
            const float *from = values + j;
            int64_t i = 0;
            for (; i + W <= rows; i += W) store(to + i, gathered(from + i * columns, columns) * scale);
            for (; i < rows; ++i) store_some(to + i, set(from[i * columns]) * scale, 1);
            if (!first) clear_rest(to, side.rows, side.row_bytes);
        }
        return;
    }
    const int64_t low = first > span.first_row ? first : span.first_row;
    const int64_t high = first + rows < end ? first + rows : end;
    for (int64_t j = low; j < high; ++j) {
        T *to = reinterpret_cast<T *>(image + (j - span.first_row) * side.row_bytes);
        const float *from = values + (j - first) * columns;
        over(columns, [&](int64_t i, int n) { put(to + i, take(from + i, n) * scale, n); });
        clear_rest(to, columns, side.row_bytes);
    }
}

// By the image's dtype. A side's own dtype meets it at run time: nine pairs are much to compile.
using PutSpan = void (*)(const TsPack &, const TsPackSide &, const TsPackSpan &, vf scale,
                         const float *values, int64_t first, int64_t rows);

inline int pack_side(TsPack &pack, int64_t at, PutSpan put_rows, Checksum &checksum) {
    const TsPackSide &side = pack.sides[at];
    const Widen widen = side.dtype == TS_FP32   ? floats
                        : side.dtype == TS_BF16 ? widened_floats<bf16>
                                                : widened_floats<f16>;
    const int64_t row = side.columns * (side.dtype == TS_FP32 ? 4 : 2);
    const int64_t most_rows = pack.chunk_bytes / row;
    float *room = reinterpret_cast<float *>(pack.scratch + pack.chunk_bytes);
    const vf scale = set(pack.scales[at]);
    Seen seen;
    for (int64_t first = 0; first < side.rows; first += most_rows) {
        const int64_t left = side.rows - first, rows = left < most_rows ? left : most_rows;
        if (int why = read_all(pack, side.from + first * row, rows * row, pack.scratch)) return why;
        checksum.add(pack.scratch, rows * row);
        const float *values = widen(pack.scratch, rows * side.columns, room, seen);
        for (int64_t s = 0; s < side.spans; ++s)
            put_rows(pack, side, pack.spans[side.first_span + s], scale, values, first, rows);
    }
    pack.most[at] = seen.told();
    return 0;
}

inline int pack_of_dtype(TsPack &pack) {
    const PutSpan put_rows = pack.dtype == TS_FP32   ? put_span<float>
                             : pack.dtype == TS_BF16 ? put_span<bf16>
                                                     : put_span<f16>;
    clear_between(pack);
    Checksum checksum;
    for (int64_t i = 0; i < pack.count; ++i)
        if (int why = pack_side(pack, i, put_rows, checksum)) return why;
    pack.checksum = checksum.whole();
    return 0;
}

}  // namespace

// An adapter's file packed into its image: equal to plain loops in double to the last bit.
#pragma once
#include <unistd.h>

#include "checks.h"
#include "pack.h"

extern "C" int ts_pack(TsPack *);

inline void check_pack(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    const int64_t count = dice.between(1, 5), item = dtype == TS_FP32 ? 4 : 2;
    std::vector<TsPackSide> sides;
    std::vector<TsPackSpan> spans;
    std::vector<float> scales, most(static_cast<size_t>(count));
    std::vector<Array> stored;
    std::vector<char> file(static_cast<size_t>(dice.between(0, 90)), 'x');
    int64_t end = item * dice.between(0, 40), widest = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t of = dice.between(0, 2), rows = dice.between(1, 40);
        const int64_t columns = dice.between(1, 300), turned = dice.between(0, 1);
        stored.emplace_back(of, rows * columns);
        stored.back().random(dice);
        const int64_t block_rows = turned ? columns : rows, across = turned ? rows : columns;
        const int64_t row_bytes = item * (across + dice.between(0, 9));
        const int64_t cut = dice.between(0, block_rows);
        sides.push_back({static_cast<int64_t>(file.size()), of, rows, columns, turned, row_bytes,
                         static_cast<int64_t>(spans.size()), 2});
        for (const auto &[first, stop] : {std::pair(int64_t{0}, cut), std::pair(cut, block_rows)}) {
            spans.push_back({first, stop - first, end});
            end += (stop - first) * row_bytes + item * dice.between(0, 20);
        }
        scales.push_back(static_cast<float>(dice.real()));
        file.insert(file.end(), stored.back().bytes.begin(), stored.back().bytes.end());
        widest = std::max(widest, columns * stored.back().size());
    }
    FILE *kept = tmpfile();
    seen.must(kept && fwrite(file.data(), 1, file.size(), kept) == file.size() && !fflush(kept));
    if (!kept) return;
    const int64_t chunk = (std::max(widest, dice.between(1, 5000)) + 63) / 64 * 64;
    Scratch scratch(3 * chunk);
    Array image(TS_BF16, end / 2);  // as bytes
    TsPack pack = {isa, dtype, dice.between(0, 1), fileno(kept), count, sides.data(), spans.data(),
                   scales.data(), image.at(0), end, scratch.at, chunk, most.data(), 0, 0, 0};
    seen.must(ts_pack(&pack) == 0);

    std::vector<char> want(static_cast<size_t>(end), 0);
    for (size_t i = 0; i < sides.size(); ++i) {
        const TsPackSide &side = sides[i];
        double largest = 0;
        for (int64_t v = 0; v < stored[i].count; ++v) {
            largest = std::max(largest, fabs(stored[i][v]));
            const int64_t r = side.turned ? v % side.columns : v / side.columns;
            const int64_t c = side.turned ? v / side.columns : v % side.columns;
            const TsPackSpan &first = spans[static_cast<size_t>(side.first_span)];
            const TsPackSpan &second = spans[static_cast<size_t>(side.first_span + 1)];
            const TsPackSpan &span = r < first.rows ? first : second;
            char *to = want.data() + span.at + (r - span.first_row) * side.row_bytes + c * item;
            Array::write(to, nearest(stored[i][v] * scales[i], TS_FP32), dtype);
        }
        seen.must(most[i] == static_cast<float>(largest));
    }
    seen.must(!memcmp(image.at(0), want.data(), want.size()));

    const uint64_t checksum = pack.checksum;
    seen.must(ts_pack(&pack) == 0 && pack.checksum == checksum);
    const int64_t last = static_cast<int64_t>(file.size()) - 1;
    const char other = static_cast<char>(file.back() ^ 4);
    seen.must(pwrite(fileno(kept), &other, 1, last) == 1 && ts_pack(&pack) == 0);
    seen.must(pack.checksum != checksum);
    seen.must(!ftruncate(fileno(kept), last) && ts_pack(&pack) == 1 && pack.ended == last);
    pack.fd = -1;
    seen.must(ts_pack(&pack) == 2 && pack.failed);
    fclose(kept);
}

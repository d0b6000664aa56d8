// One layer's LoRA for the rows of several adapters, beside plain loops in double. Segments of many
// rows go by rows here: their tiles are AMX's alone, and checked in Python.
#pragma once
#include "checks.h"
#include "lora.h"

extern "C" void ts_lora(const TsStep *, const TsGroup *, int64_t layer, const void *x,
                        int64_t x_stride, void *y, int64_t y_stride);

// A or Bt of one pair: rows in memory of their own, in order at a stride, or anywhere by a table.
struct Side {
    Array values;
    int64_t width, stride;
    std::vector<int64_t> order;
    std::vector<const char *> table;

    Side(Dice &dice, int64_t dtype, int64_t rank, int64_t width)
        : values(dtype, rank * (width + 8) + 8), width(width), stride(width + dice.between(0, 8)) {
        for (int64_t j = 0; j < rank; ++j) order.push_back(j);
        const bool split = dice.between(0, 2) == 0;
        if (split) std::reverse(order.begin(), order.end());
        for (int64_t j = 0; j < rank; ++j)
            for (int64_t k = 0; k < width; ++k) values.set(at(j) + k, dice.real() / sqrt(width));
        if (split)
            for (int64_t j = 0; j < rank; ++j) table.push_back(values.at(at(j)));
    }
    int64_t at(int64_t j) const { return order[static_cast<size_t>(j)] * stride; }
    TsSide told() {
        return table.empty()
                   ? TsSide{reinterpret_cast<int64_t>(values.at(0)), stride * values.size()}
                   : TsSide{reinterpret_cast<int64_t>(table.data()), 0};
    }
};

struct Lora {
    static constexpr int64_t LAYERS = 2, LAYER = 1, MODULES = 4;
    int64_t dtype, width, modules, total = 0, rows;
    TsGroup group = {};
    std::vector<std::vector<Side>> sides;        // [adapter][2 module + (Bt)]
    std::vector<std::vector<TsPair>> pairs;      // [adapter][layer x module]
    std::vector<std::vector<int64_t>> rows_of;   // [adapter]

    Lora(Dice &dice, int64_t dtype)
        : dtype(dtype),
          width(dice.between(1, 200)),
          modules(dice.between(1, 3)),
          rows(dice.between(1, 20)),
          group{width, modules, {}} {
        for (int64_t m = 0; m < modules; ++m) {
            group.modules[m] = {m + 1, total, dice.between(1, 200)};
            total += group.modules[m].out;
        }
        const int64_t adapters = dice.between(1, 4);
        rows_of.resize(static_cast<size_t>(adapters));
        for (int64_t r = 0; r < rows; ++r) {
            const int64_t a = dice.between(0, adapters);  // the last: no adapter
            if (a < adapters) rows_of[static_cast<size_t>(a)].push_back(r);
        }
        for (int64_t a = 0; a < adapters; ++a) {
            std::vector<Side> own;
            std::vector<TsPair> all(LAYERS * MODULES, TsPair{});
            for (int64_t m = 0; m < modules; ++m) {
                const int64_t rank = dice.between(0, 3) ? dice.between(1, 24) : 0;
                own.emplace_back(dice, dtype, rank, width);
                own.emplace_back(dice, dtype, rank, group.modules[m].out);
                all[static_cast<size_t>(LAYER * MODULES + m + 1)].rank = rank;
            }
            sides.push_back(std::move(own));
            pairs.push_back(std::move(all));
        }
        for (size_t a = 0; a < sides.size(); ++a) {  // only now they stay where they are
            for (int64_t m = 0; m < modules; ++m) {
                TsPair &pair = pairs[a][static_cast<size_t>(LAYER * MODULES + m + 1)];
                pair.a = sides[a][static_cast<size_t>(2 * m)].told();
                pair.bt = sides[a][static_cast<size_t>(2 * m + 1)].told();
            }
        }
    }

    void check(Dice &dice, int64_t isa, Seen &seen) {
        const int64_t x_width = width + 3, y_width = total + 5;
        Array x(dtype, rows * x_width), y(dtype, rows * y_width);
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t i = 0; i < width; ++i) x.set(r * x_width + i, dice.real());
            for (int64_t i = 0; i < total; ++i) y.set(r * y_width + i, dice.real());
        }
        const Array before = y;
        std::vector<TsEntry> entries;
        std::vector<int64_t> listed;
        int64_t floats = 0;
        for (size_t a = 0; a < pairs.size(); ++a) {
            int64_t widest = 0;
            for (const TsPair &p : pairs[a]) widest = std::max(widest, p.rank);
            const int64_t count = static_cast<int64_t>(rows_of[a].size());
            if (!count) continue;
            entries.push_back({reinterpret_cast<int64_t>(pairs[a].data()),
                               static_cast<int64_t>(listed.size()), count, floats, widest, 0});
            listed.insert(listed.end(), rows_of[a].begin(), rows_of[a].end());
            floats += MODULES * count * widest;
        }
        Array t(TS_FP32, floats + 1);
        const TsStep step = {isa, dtype, dice.between(1, 3), MODULES,
                             reinterpret_cast<int64_t>(entries.data()),
                             static_cast<int64_t>(entries.size()),
                             reinterpret_cast<int64_t>(listed.data()),
                             reinterpret_cast<int64_t>(t.at(0)), 0, 0};
        ts_lora(&step, &group, LAYER, x.at(0), x_width * x.size(), y.at(0), y_width * y.size());
        std::vector<double> added(static_cast<size_t>(y.count), 0);
        for (size_t a = 0; a < pairs.size(); ++a)
            for (int64_t r : rows_of[a])
                for (int64_t m = 0; m < modules; ++m)
                    add(a, m, x, r * x_width, added.data() + r * y_width + group.modules[m].first);
        for (int64_t i = 0; i < y.count; ++i) {
            if (i % y_width >= total) {
                seen.must(isnan(y[i]));
                continue;
            }
            const double want = before[i] + added[static_cast<size_t>(i)];
            // Where nothing was added, every bit stays.
            const double room = added[static_cast<size_t>(i)] != 0
                                    ? (half_unit(dtype) + 1e-6) * fabs(want) + 1e-5
                                    : 1e-30;
            seen.look(y[i], want, room);
        }
    }

    void add(size_t a, int64_t m, const Array &x, int64_t row, double *to) const {
        const Side &down = sides[a][static_cast<size_t>(2 * m)];
        const Side &up = sides[a][static_cast<size_t>(2 * m + 1)];
        for (size_t j = 0; j < down.order.size(); ++j) {
            double t = 0;
            for (int64_t k = 0; k < width; ++k)
                t += x[row + k] * down.values[down.at(static_cast<int64_t>(j)) + k];
            for (int64_t c = 0; c < up.width; ++c)
                to[c] += t * up.values[up.at(static_cast<int64_t>(j)) + c];
        }
    }
};

inline void check_lora(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    if (dtype == TS_FP16 && isa == TS_PLAIN) return;  // left to torch
    Lora(dice, dtype).check(dice, isa, seen);
}

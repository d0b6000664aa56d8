// A step of paged attention on an arena of NaN, beside plain loops in double.
#pragma once
#include "attention_api.h"
#include "checks.h"

extern "C" int64_t ts_scratch_bytes(const TsArena *, const TsPaged *);
extern "C" void ts_attend(const TsArena *, const TsPaged *, const TsAttend *);

struct Attention {
    static constexpr int64_t LAYERS = 3, LAYER = 1, POSITIONS = 700;
    int64_t dtype, kv_heads, group, heads, dim, page_tokens, width, page_elements;
    std::vector<int64_t> first_row = {0}, start, first_page = {0}, pages;
    Array cos, sin, q_norm, k_norm;
    std::vector<Array> kept;  // arena, qkv, out
    bool norms;

    Attention(Dice &dice, int64_t dtype)
        : dtype(dtype),
          kv_heads(dice.between(1, 3)),
          group(dice.between(1, 6)),
          heads(kv_heads * group),
          dim(2 * dice.between(1, dice.between(0, 3) ? 40 : 128)),
          page_tokens(dice.between(1, 20)),
          width(kv_heads * dim),
          page_elements(LAYERS * page_tokens * 2 * width),
          cos(TS_FP32, POSITIONS * dim),
          sin(TS_FP32, POSITIONS * dim),
          q_norm(TS_FP32, dim),
          k_norm(TS_FP32, dim),
          norms(dice.between(0, 1)) {
        q_norm.random(dice), k_norm.random(dice);
        for (int64_t p = 0; p < POSITIONS; ++p) {
            for (int64_t i = 0; i < dim / 2; ++i) {
                const double angle = 3 * dice.real();
                for (int64_t half = 0; half < 2; ++half) {
                    cos.set(p * dim + half * dim / 2 + i, ::cos(angle));
                    sin.set(p * dim + half * dim / 2 + i, half ? ::sin(angle) : -::sin(angle));
                }
            }
        }
        const int64_t decode = dice.between(0, 3), prompts = dice.between(decode ? 0 : 1, 2);
        for (int64_t i = 0; i < decode; ++i) add(dice.between(0, 1) ? dice.between(0, 40)
                                                                     : dice.between(250, 600), 1);
        for (int64_t i = 0; i < prompts; ++i) add(dice.between(0, 150), dice.between(2, 90));
        const int64_t count = static_cast<int64_t>(pages.size()) + 2;
        std::vector<int64_t> order(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
        for (size_t i = order.size() - 1; i; --i)
            std::swap(order[i], order[dice.next() % (i + 1)]);
        std::copy(order.begin(), order.begin() + static_cast<int64_t>(pages.size()), pages.begin());
        kept.emplace_back(dtype, count * page_elements);
        kept.emplace_back(dtype, first_row.back() * (heads + 2 * kv_heads) * dim);
        kept.emplace_back(dtype, first_row.back() * heads * dim + 3);
        kept[1].random(dice);
        for (size_t s = 0; s < start.size(); ++s)
            for (int64_t p = 0; p < start[s]; ++p)
                for (int64_t i = 0; i < 2 * width; ++i) kept[0].set(slot(s, p) + i, dice.real());
    }

    void add(int64_t from, int64_t count) {
        start.push_back(from);
        first_row.push_back(first_row.back() + count);
        first_page.push_back(first_page.back() + (from + count + page_tokens - 1) / page_tokens);
        pages.resize(static_cast<size_t>(first_page.back()));
    }

    // The element where K of a sequence's position begins; V is `width` on.
    int64_t slot(size_t sequence, int64_t p) const {
        const int64_t page = pages[static_cast<size_t>(first_page[sequence] + p / page_tokens)];
        return page * page_elements + (LAYER * page_tokens + p % page_tokens) * 2 * width;
    }

    // What a head's elements become at a position, rounded once.
    void turn(const Array &from, int64_t at, const Array &norm, int64_t p, double *to) const {
        double squares = 0;
        for (int64_t i = 0; i < dim; ++i) squares += from[at + i] * from[at + i];
        const double scale = 1 / sqrt(squares / static_cast<double>(dim) + 1e-5f);
        const auto own = [&](int64_t i) {
            return norms ? from[at + i] * scale * norm[i] : from[at + i];
        };
        for (int64_t i = 0; i < dim; ++i) {
            const int64_t other = (i + dim / 2) % dim;
            to[i] = own(i) * cos[p * dim + i] + own(other) * sin[p * dim + i];
        }
    }

    void check(int64_t isa, Seen &seen) {
        const Array qkv_before = kept[1];
        Array untouched = kept[0];
        const TsArena arena = {kept[0].at(0), page_elements, page_tokens, heads, kv_heads, dim,
                               reinterpret_cast<const float *>(cos.at(0)),
                               reinterpret_cast<const float *>(sin.at(0)),
                               static_cast<float>(1 / sqrt(static_cast<double>(dim))), 1e-5f,
                               dtype, isa};
        TsPaged rows = {static_cast<int64_t>(start.size()), first_row.data(), start.data(),
                        first_page.data(), pages.data(), nullptr, 2};
        Scratch scratch(ts_scratch_bytes(&arena, &rows));
        rows.scratch = scratch.at;
        const TsAttend job = {LAYER, kept[1].at(0),
                              norms ? reinterpret_cast<const float *>(q_norm.at(0)) : nullptr,
                              norms ? reinterpret_cast<const float *>(k_norm.at(0)) : nullptr,
                              kept[2].at(0)};
        ts_attend(&arena, &rows, &job);
        for (size_t s = 0; s < start.size(); ++s)
            for (int64_t r = first_row[s]; r < first_row[s + 1]; ++r)
                check_turned(qkv_before, s, r, untouched, seen);
        seen.must(kept[0].bytes == untouched.bytes);
        for (size_t s = 0; s < start.size(); ++s)
            for (int64_t r = first_row[s]; r < first_row[s + 1]; ++r)
                for (int64_t h = 0; h < heads; ++h) check_head(s, r, h, seen);
        for (int64_t i = 0; i < 3; ++i) seen.must(isnan(kept[2][kept[2].count - 3 + i]));
    }

    // q in its place, and the row's slot; the latter is then written to `arena` too.
    void check_turned(const Array &before, size_t s, int64_t r, Array &arena, Seen &seen) {
        const int64_t p = start[s] + r - first_row[s], row = r * (heads + 2 * kv_heads) * dim;
        const double unit = 2 * half_unit(dtype) + 1e-5;
        std::vector<double> want(static_cast<size_t>(dim));
        for (int64_t h = 0; h < heads + kv_heads; ++h) {
            const bool is_q = h < heads;
            turn(before, row + h * dim, is_q ? q_norm : k_norm, p, want.data());
            for (int64_t i = 0; i < dim; ++i) {
                const int64_t k = slot(s, p) + (h - heads) * dim + i;
                const double expected = want[static_cast<size_t>(i)];
                seen.look(is_q ? kept[1][row + h * dim + i] : kept[0][k], expected,
                          unit * fabs(expected) + 1e-5);
            }
        }
        for (int64_t i = 0; i < width; ++i)
            seen.look(kept[0][slot(s, p) + width + i], before[row + (heads + kv_heads) * dim + i],
                      1e-30);
        memcpy(arena.at(slot(s, p)), kept[0].at(slot(s, p)),
               static_cast<size_t>(2 * width * arena.size()));
    }

    // One row's head, of q and k as they were rounded.
    void check_head(size_t s, int64_t r, int64_t h, Seen &seen) const {
        const int64_t keys = start[s] + r - first_row[s] + 1, own = h / group * dim;
        const int64_t q = (r * (heads + 2 * kv_heads) + h) * dim;
        std::vector<double> weight(static_cast<size_t>(keys)), want(static_cast<size_t>(dim));
        double most = -INFINITY, total = 0;
        for (int64_t p = 0; p < keys; ++p) {
            double score = 0;
            const int64_t k = slot(s, p) + own;
            for (int64_t i = 0; i < dim; ++i) score += kept[1][q + i] * kept[0][k + i];
            weight[static_cast<size_t>(p)] = score / sqrt(static_cast<double>(dim));
            most = std::max(most, weight[static_cast<size_t>(p)]);
        }
        for (double &w : weight) total += w = exp(w - most);
        for (int64_t p = 0; p < keys; ++p)
            for (int64_t i = 0; i < dim; ++i)
                want[static_cast<size_t>(i)] +=
                    weight[static_cast<size_t>(p)] / total * kept[0][slot(s, p) + width + own + i];
        const double room = dtype == TS_FP32 ? 1e-5 : dtype == TS_BF16 ? 8e-3 : 1e-3;
        for (int64_t i = 0; i < dim; ++i) {
            const double expected = want[static_cast<size_t>(i)];
            seen.look(kept[2][(r * heads + h) * dim + i], expected, room * (1 + fabs(expected)));
        }
    }
};

inline void check_attention(Dice &dice, int64_t isa, int64_t dtype, Seen &seen) {
    Attention(dice, dtype).check(isa, seen);
}

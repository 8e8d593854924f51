//! Tiles for x86-64. Accumulators of a tile stay in registers; four rows are reduced at once.

use std::arch::x86_64::*;

use super::bounds::Totals;
use super::cpu::{LARGEST, Sketched, Split, Tiles, plain_dot, plain_sum};
use super::{Bytes, Words};

/// Lines of a sketch that are asked for ahead of their use: rows are read four at a time, which hides from the
/// machine that memory is walked in order.
const AHEAD: usize = 64;

/// The AVX-512 VNNI tiles, where the machine has it.
pub(super) fn avx512vnni() -> Option<Tiles> {
    let found = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni");
    // SAFETY (of each): the features were detected.
    found.then_some(Tiles {
        exact: |candidates, rows, lines, out| unsafe { vnni_exact(candidates, rows, lines, out) },
        sketch: Some(Sketched {
            split: |candidate, parts| unsafe { vnni_split(candidate, parts) },
            tile: |_, parts, rows, out| unsafe { vnni_sketch(parts, rows, out) },
            dot: |candidate, row| unsafe { vnni_dot(candidate, row) },
            from: 0,
        }),
        sum: |candidate, sum| unsafe { vnni_sum(candidate, sum) },
    })
}

/// The AVX2 tiles, where the machine has it.
pub(super) fn avx2() -> Option<Tiles> {
    // SAFETY (of each): the feature was detected.
    is_x86_feature_detected!("avx2").then_some(Tiles {
        exact: |candidates, rows, lines, out| unsafe { avx2_exact(candidates, rows, lines, out) },
        sketch: Some(Sketched {
            split: |candidate, _| unsafe { avx2_totals(candidate) },
            tile: |candidate, _, rows, out| unsafe { avx2_sketch(candidate, rows, out) },
            dot: |candidate, row| unsafe { avx2_dot(candidate, row) },
            from: 8 << 20,
        }),
        sum: |candidate, sum| unsafe { avx2_sum(candidate, sum) },
    })
}

/// Walks candidates by `$wide` and rows by four, the ends one by one.
macro_rules! walk {
    ($grid:ident, $candidates:ident, $rows:ident, $lines:ident, $out:ident, $wide:literal) => {{
        let height = $rows.len() / $lines;
        for (group, out) in $candidates.chunks($wide * $lines).zip($out.chunks_mut($wide * height)) {
            let many = group.len() / $lines;
            for (number, rows) in $rows.chunks(4 * $lines).enumerate() {
                let mut dots = [[0; 4]; $wide];
                if many == $wide && rows.len() == 4 * $lines {
                    $grid::<$wide, 4>(group, rows, $lines, &mut dots);
                } else if rows.len() == 4 * $lines {
                    for (one, dots) in group.chunks_exact($lines).zip(&mut dots) {
                        $grid::<1, 4>(one, rows, $lines, std::slice::from_mut(dots));
                    }
                } else {
                    for (one, dots) in group.chunks_exact($lines).zip(&mut dots) {
                        for (row, dot) in rows.chunks_exact($lines).zip(dots) {
                            let mut alone = [[0; 4]];
                            $grid::<1, 1>(one, row, $lines, &mut alone);
                            *dot = alone[0][0];
                        }
                    }
                }
                for (dots, out) in dots.iter().zip(out.chunks_exact_mut(height)) {
                    store(&mut out[4 * number..], *dots);
                }
            }
        }
    }};
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_exact(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [i32]) {
    walk!(vnni_grid, candidates, rows, lines, out, 4);
}

#[target_feature(enable = "avx2")]
fn avx2_exact(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [i32]) {
    walk!(avx2_grid, candidates, rows, lines, out, 2);
}

/// `C` candidates by `R` rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_grid<const C: usize, const R: usize>(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [[i32; 4]]) {
    let (candidates, rows) = (starts::<_, C>(candidates, lines), starts::<_, R>(rows, lines));
    let mut sums = [[_mm512_setzero_si512(); 4]; C];
    for k in 0..lines {
        let mut words = [_mm512_setzero_si512(); R];
        for r in 0..R {
            // SAFETY: `starts` found `lines` lines behind each start.
            words[r] = unsafe { wide(rows[r].add(k)) };
        }
        for c in 0..C {
            // SAFETY: as above.
            let candidate = unsafe { wide(candidates[c].add(k)) };
            for r in 0..R {
                sums[c][r] = _mm512_dpwssd_epi32(sums[c][r], candidate, words[r]);
            }
        }
    }
    for c in 0..C {
        out[c] = reduce512(sums[c]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_split(candidate: &[Words], parts: &mut [Split]) -> Totals {
    for (pair, part) in candidate.chunks_exact(2).zip(parts) {
        for (side, words) in pair.iter().enumerate() {
            // SAFETY: each is a half of 64 aligned bytes.
            unsafe {
                let words = _mm512_min_epi16(wide(words), _mm512_set1_epi16(LARGEST));
                let high = _mm512_srai_epi16::<8>(_mm512_add_epi16(words, _mm512_set1_epi16(128)));
                let (to_high, to_low) = ((&raw mut part.high).cast::<__m256i>(), (&raw mut part.low).cast::<__m256i>());
                _mm256_store_si256(to_high.add(side), _mm512_cvtepi16_epi8(high));
                _mm256_store_si256(to_low.add(side), _mm512_cvtepi16_epi8(words));
            }
        }
    }
    Totals::of(candidate)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_sketch(parts: &[Split], rows: &[Bytes], out: &mut [i32]) {
    let stride = parts.len();
    for (rows, out) in rows.chunks(4 * stride).zip(out.chunks_mut(4)) {
        // At the end the last row stands in for those that lack.
        let starts = if out.len() == 4 {
            starts::<_, 4>(rows, stride)
        } else {
            [0, 1, 2, 3].map(|r| starts::<_, 1>(&rows[stride * r.min(out.len() - 1)..], stride)[0])
        };
        let mut high = [_mm512_setzero_si512(); 4];
        let mut low = [_mm512_setzero_si512(); 4];
        for (k, part) in parts.iter().enumerate() {
            // SAFETY: a part starts with twice 64 aligned bytes.
            let (h, l) = unsafe { (wide(&raw const part.high), wide(&raw const part.low)) };
            for r in 0..4 {
                let ahead = rows.as_ptr().wrapping_add(4 * k + r + AHEAD);
                // SAFETY: `starts` found `stride` lines behind each start; a prefetch reads nothing.
                let row = unsafe {
                    _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
                    wide(starts[r].add(k))
                };
                high[r] = _mm512_dpbusd_epi32(high[r], row, h);
                low[r] = _mm512_dpbusd_epi32(low[r], row, l);
            }
        }
        for r in 0..4 {
            low[r] = _mm512_add_epi32(low[r], _mm512_slli_epi32::<8>(high[r]));
        }
        store(out, reduce512(low));
    }
}

/// One row, in four sums so that no instruction waits for the one before.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_dot(candidate: &[Words], row: &[Words]) -> i32 {
    let mut sums = [_mm512_setzero_si512(); 4];
    for (candidate, row) in candidate.chunks(4).zip(row.chunks(4)) {
        for ((sum, candidate), row) in sums.iter_mut().zip(candidate).zip(row) {
            // SAFETY: a word is 64 aligned bytes.
            *sum = unsafe { _mm512_dpwssd_epi32(*sum, wide(candidate), wide(row)) };
        }
    }
    let [a, b, c, d] = sums;
    _mm512_reduce_add_epi32(_mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d)))
}

#[target_feature(enable = "avx2")]
fn avx2_dot(candidate: &[Words], row: &[Words]) -> i32 {
    plain_dot(candidate, row)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
fn vnni_sum(candidate: &[Words], sum: &[i64]) -> i64 {
    let mut total = _mm512_setzero_si512();
    let whole = sum.len() / 8;
    assert!(candidate.len() * 32 >= sum.len());
    for i in 0..whole {
        // SAFETY: 8 components from 8 i on lie within both, as asserted; the loads need no alignment.
        let (c, s) = unsafe {
            (
                _mm_loadu_si128(candidate.as_ptr().cast::<__m128i>().add(i)),
                _mm512_loadu_si512(sum.as_ptr().add(8 * i).cast()),
            )
        };
        total = _mm512_add_epi64(total, _mm512_mullo_epi64(_mm512_cvtepi16_epi64(c), s));
    }
    let rest = sum[8 * whole..].iter().enumerate().map(|(i, s)| {
        let at = 8 * whole + i;
        i64::from(candidate[at / 32].0[at % 32]).wrapping_mul(*s)
    });
    rest.fold(_mm512_reduce_add_epi64(total), i64::wrapping_add)
}

/// `C` candidates by `R` rows.
#[inline]
#[target_feature(enable = "avx2")]
fn avx2_grid<const C: usize, const R: usize>(candidates: &[Words], rows: &[Words], lines: usize, out: &mut [[i32; 4]]) {
    let (candidates, rows) = (starts::<_, C>(candidates, lines), starts::<_, R>(rows, lines));
    let mut sums = [[_mm256_setzero_si256(); 4]; C];
    for k in 0..lines {
        for side in 0..2 {
            let mut words = [_mm256_setzero_si256(); R];
            for r in 0..R {
                // SAFETY: `starts` found `lines` lines behind each start.
                words[r] = unsafe { half(rows[r].add(k), side) };
            }
            for c in 0..C {
                // SAFETY: as above.
                let candidate = unsafe { half(candidates[c].add(k), side) };
                for r in 0..R {
                    sums[c][r] = _mm256_add_epi32(sums[c][r], _mm256_madd_epi16(candidate, words[r]));
                }
            }
        }
    }
    for c in 0..C {
        out[c] = reduce256(sums[c]);
    }
}

#[target_feature(enable = "avx2")]
fn avx2_totals(candidate: &[Words]) -> Totals {
    Totals::of(candidate)
}

#[target_feature(enable = "avx2")]
fn avx2_sketch(candidate: &[Words], rows: &[Bytes], out: &mut [i32]) {
    let stride = candidate.len() / 2;
    for (row, out) in rows.chunks_exact(stride).zip(out) {
        let mut sums = [_mm256_setzero_si256(); 4];
        for (pair, bytes) in candidate.chunks_exact(2).zip(row) {
            for quarter in 0..4 {
                // SAFETY: a quarter of 64 bytes and of two words, aligned.
                let (c, b) = unsafe {
                    let bytes = _mm_load_si128((&raw const bytes.0).cast::<__m128i>().add(quarter));
                    (half(&raw const pair[quarter / 2], quarter % 2), _mm256_cvtepu8_epi16(bytes))
                };
                sums[quarter] = _mm256_add_epi32(sums[quarter], _mm256_madd_epi16(c, b));
            }
        }
        let [a, b, c, d] = reduce256(sums);
        *out = a.wrapping_add(b).wrapping_add(c).wrapping_add(d);
    }
}

#[target_feature(enable = "avx2")]
fn avx2_sum(candidate: &[Words], sum: &[i64]) -> i64 {
    plain_sum(candidate, sum)
}

/// Starts of the first `N` rows of `lines` lines, all of which exist.
#[inline]
fn starts<T, const N: usize>(rows: &[T], lines: usize) -> [*const T; N] {
    let mut starts = [rows[..N * lines].as_ptr(); N];
    for i in 1..N {
        starts[i] = starts[i - 1].wrapping_add(lines);
    }
    starts
}

/// The 64 aligned bytes at `line`, which must exist.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn wide<T>(line: *const T) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_load_si512(line.cast()) }
}

/// One half, 0 or 1, of the 64 aligned bytes at `line`, which must exist.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn half<T>(line: *const T, side: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_load_si256(line.cast::<__m256i>().add(side)) }
}

/// Stores four values, or as many as there is room for.
#[inline]
fn store(out: &mut [i32], dots: [i32; 4]) {
    match out.first_chunk_mut() {
        Some(four) => *four = dots,
        None => out.iter_mut().zip(dots).for_each(|(out, dot)| *out = dot),
    }
}

/// Sums of four registers.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn reduce512([a, b, c, d]: [__m512i; 4]) -> [i32; 4] {
    let ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    let all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    four(_mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half)))
}

/// Sums of four registers.
#[inline]
#[target_feature(enable = "avx2")]
fn reduce256([a, b, c, d]: [__m256i; 4]) -> [i32; 4] {
    let ab = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let cd = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    four(_mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all)))
}

#[inline]
#[target_feature(enable = "sse2")]
fn four(sums: __m128i) -> [i32; 4] {
    // SAFETY: both are 16 bytes of plain integers.
    unsafe { std::mem::transmute(sums) }
}

package profile

import (
	"math"
	"slices"
)

// nonNegative minimises Σ((row·x − y)/y)² over x ≥ 0 with three unknowns. It solves the
// normal equations on each of the seven faces of the non-negative octant and keeps the
// best feasible one; the optimum of a convex problem lies on one of them. Columns are
// scaled to their largest entry, so that n² beside 1 does not ruin the condition.
func nonNegative(rows [][]float64, y []float64) [3]float64 {
	var scale [3]float64
	for _, r := range rows {
		for j := range scale {
			scale[j] = math.Max(scale[j], math.Abs(r[j]))
		}
	}
	var best [3]float64
	bestErr := math.Inf(1)
	for face := 1; face < 8; face++ {
		x, ok := solveFace(rows, y, scale, face)
		if !ok {
			continue
		}
		if e := squared(rows, y, x); e < bestErr*(1-1e-12) {
			best, bestErr = x, e
		}
	}
	return best
}

func solveFace(rows [][]float64, y []float64, scale [3]float64, face int) ([3]float64, bool) {
	var cols []int
	for j := range 3 {
		if face&(1<<j) != 0 {
			cols = append(cols, j)
		}
	}
	k := len(cols)
	m := make([][]float64, k)
	for i := range m {
		m[i] = make([]float64, k+1)
	}
	for n, r := range rows {
		for i, ci := range cols {
			vi := r[ci] / scale[ci] / y[n]
			for j, cj := range cols {
				m[i][j] += vi * r[cj] / scale[cj] / y[n]
			}
			m[i][k] += vi
		}
	}
	sol, ok := eliminate(m)
	var x [3]float64
	if !ok {
		return x, false
	}
	for i, ci := range cols {
		if sol[i] < 0 {
			return x, false
		}
		x[ci] = sol[i] / scale[ci]
	}
	return x, true
}

// eliminate solves the augmented system by Gauss-Jordan with row pivoting.
func eliminate(m [][]float64) ([]float64, bool) {
	k := len(m)
	size := 0.0
	for _, r := range m {
		for _, v := range r[:k] {
			size = math.Max(size, math.Abs(v))
		}
	}
	for c := range k {
		p := c
		for r := c + 1; r < k; r++ {
			if math.Abs(m[r][c]) > math.Abs(m[p][c]) {
				p = r
			}
		}
		if math.Abs(m[p][c]) <= size*1e-13 {
			return nil, false
		}
		m[c], m[p] = m[p], m[c]
		for r := range k {
			if r == c {
				continue
			}
			f := m[r][c] / m[c][c]
			for j := c; j <= k; j++ {
				m[r][j] -= f * m[c][j]
			}
		}
	}
	out := make([]float64, k)
	for i := range out {
		out[i] = m[i][k] / m[i][i]
	}
	return out, true
}

func at(row []float64, x [3]float64) float64 { return row[0]*x[0] + row[1]*x[1] + row[2]*x[2] }

func squared(rows [][]float64, y []float64, x [3]float64) float64 {
	sum := 0.0
	for i, r := range rows {
		d := (at(r, x) - y[i]) / y[i]
		sum += d * d
	}
	return sum
}

func residuals(rows [][]float64, y []float64, x [3]float64) Residuals {
	var res Residuals
	ratios := make([]float64, 0, len(rows))
	for i, r := range rows {
		p := at(r, x)
		e := math.Abs(y[i]-p) / y[i]
		res.MAPE += e / float64(len(rows))
		res.Max = math.Max(res.Max, e)
		if p > 0 {
			ratios = append(ratios, y[i]/p)
		}
	}
	slices.Sort(ratios)
	res.P50, res.P80, res.P95 = Quantile(ratios, 0.5), Quantile(ratios, 0.8), Quantile(ratios, 0.95)
	return res
}

func leaveOneOut(rows [][]float64, y []float64) float64 {
	sum := 0.0
	for i := range rows {
		r := slices.Concat(rows[:i], rows[i+1:])
		v := slices.Concat(y[:i], y[i+1:])
		sum += math.Abs(y[i]-at(rows[i], nonNegative(r, v))) / y[i]
	}
	return sum / float64(len(rows))
}

// Quantile returns the nearest-rank q-quantile of sorted values; 0 for none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

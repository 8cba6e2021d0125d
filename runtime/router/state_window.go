package router

import "math"

// window counts what happened in each second of the last keep seconds.
type window struct {
	name  string
	keep  float64 // seconds
	cells map[int64]int
	// What left the window.
	prunedCells, pruned int
	newest              int64
}

// cellWidth is a cell's span in seconds.
const cellWidth = 1.0

func (w *window) add(at float64) {
	if w.cells == nil {
		w.cells = map[int64]int{}
	}
	cell := int64(math.Floor(at / cellWidth))
	w.cells[cell]++
	if cell > w.newest {
		w.newest = cell
		w.prune(at)
	}
}

func (w *window) prune(now float64) {
	for cell, n := range w.cells {
		if float64(cell+1)*cellWidth <= now-w.keep {
			delete(w.cells, cell)
			w.prunedCells++
			w.pruned += n
		}
	}
}

// windowView is a window at one moment.
type windowView struct {
	cells, seen, limit  int
	covered             float64 // age of the oldest cell's begin
	prunedCells, pruned int
}

func (w *window) look(now float64) windowView {
	w.prune(now)
	v := windowView{cells: len(w.cells), limit: int(math.Ceil(w.keep/cellWidth)) + 2, prunedCells: w.prunedCells, pruned: w.pruned}
	oldest := int64(math.MaxInt64)
	for cell, n := range w.cells {
		v.seen += n
		oldest = min(oldest, cell)
	}
	if v.cells > 0 {
		v.covered = min(w.keep, max(0, now-float64(oldest)*cellWidth))
	}
	return v
}

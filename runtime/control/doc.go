// Package control decides which role each engine should have.
//
// It promises a pure step: a state and an event give the next state and the actions,
// and the same sequence gives the same decisions. A move follows measured demand only:
// arrivals priced with the engines' own curves, the work that is resident, confirmed over
// several evaluations. It refuses to leave a role below its floor, to move a pinned
// engine, and to move more than half of the engines in one evaluation, or several where none lends.
//
// Where engines lend, splits are compared by what each would have lost over the blocks of
// several windows, or of the newest span where that has lost less of late (forecast, trial);
// elsewhere by the busier role's load of the last seconds (score).
//
// Demand is counted at arrival, so requests that were refused press as hard as those
// that were served. What was refused or late says besides what a split is really worth (excess).
package control

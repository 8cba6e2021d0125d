// Package replay makes the decisions of a journal again: placements with the scheduler, role
// moves with the controller, from the inputs that stand beside each of them.
//
// It promises an exact comparison: what a decision was made from is recorded without rounding,
// so that each member of what comes out now must equal what the journal has. It refuses to
// guess: a decision without inputs, or one that asks for what was not noted, is told as such. A
// journal may come from anywhere; what is in it is bounded before anything is made of it.
package replay

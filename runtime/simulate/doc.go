// Package simulate replays arrivals in virtual time through the same scheduler and
// controller as the router, on engines modelled from curves.
//
// It promises a pure function: the same arrivals, model and seed give the same result,
// byte for byte, and every arm sees the same arrivals. After each event the state is
// checked: each request is in one place, counts add up, batches keep the engine's limits
// and roles their floors; what does not hold ends the run with an error. It refuses to
// look at a clock, to model noise, and policies that it does not have. Unless Trouble says
// otherwise, clients ask for exactly as many tokens as they get, so that the scheduler knows
// the length of each answer, engines are seen as they are, and nobody tries again. A client
// never gives up. Prompts that begin alike are computed once where an engine keeps their head
// (PrefixTokens); what it keeps the router believes by its own index. An engine may be slow, or die with all that it holds and come back.
//
// # Policies and topologies
//
// An arm is a policy in a topology. A policy places or refuses each request and is asked once
// an interval which roles to change; it sees what the router knows and nothing else. In
// hot-swap a role is a label. In cold-swap an engine that changes its role takes no new work,
// ends what it has, is away for the relaunch, and nothing else moves meanwhile. In static the
// split of the start stays. In aggregated each request has both phases on one engine, between
// which no KV travels; beside such arms the bound below leaves the transfer out.
//
// # The hindsight bound
//
// No policy on this engine model, however it places, orders, refuses or moves roles, and
// whatever it knows of the future, lets more requests keep the promise than the bound.
// Three facts hold for a request that keeps it, with n tokens in and k out, arrived at a:
//
//  1. Its first token comes no sooner than its own prefill, its transfer and a decode step
//     with nobody else on an engine that is not slower than the others, so these together fit TTFT. A step of its batch is never shorter
//     than a step with nobody else, so the mean of those fits TPOT.
//  2. Its prefill occupies one engine within [a, a + TTFT − transfer − one step alone].
//  3. Its last token comes by a + TTFT + (k−1)·TPOT. Until then it has occupied its prefill
//     and its share of each of its k steps. A step of R requests that hold B tokens takes
//     c + r·R + m·B; give each of them c/R + r + m·(tokens it holds). The shares add up to
//     the step, and since R ≤ max_running each is at least c/max_running + r + m·tokens.
//
// An engine does one thing at a time, so N engines have N·(t−s) seconds in [s, t]. Take the
// requests that must do their prefill within [s, t], with the work of fact 3 if its span lies
// within as well, else that of fact 2. At most as many of them keep the promise as fit when
// the smallest are taken first; the others are lost. A request's prefill span has a
// positive length, so it lies within at most one of several intervals that do not overlap,
// and losses of such intervals add up. The bound is the number of requests that pass
// fact 1 less the largest sum of losses over intervals between points of a regular grid.
// Any choice of intervals is valid; a finer grid can only lower the bound.
package simulate

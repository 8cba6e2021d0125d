package router

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/narwhal-fleet/narwhal/fleet"
	"github.com/narwhal-fleet/narwhal/runtime/journal"
	"github.com/narwhal-fleet/narwhal/runtime/model"
	"github.com/narwhal-fleet/narwhal/runtime/router/tenant"
)

// Access says who may use the router. The zero value lets everybody in.
type Access struct {
	// Tenants is the file of API keys and limits; "" = one tenant, anonymous, without limits.
	// It is read again when it changes.
	Tenants string
	// Control is the bearer token of the routes that change the fleet's lifecycle.
	Control fleet.Secret
}

// tenantsInterval is how often the file is looked at.
const tenantsInterval = 2 * time.Second

// access is what requests are judged by.
type access struct {
	set     *tenant.Set
	control tenant.Control
	watch   *tenant.Watcher // nil without a file
}

// newAccess reads the tenants' file; an error keeps the router from starting.
func (r *Router) newAccess() error {
	a := &r.access
	a.set = tenant.NewSet(nil)
	r.own.tenants = tenant.New(r.set.most(), nil)
	control, err := tenant.NewControl(r.set.Access.Control)
	if err != nil {
		return err
	}
	a.control = control
	if r.set.Access.Tenants == "" {
		return nil
	}
	a.watch = &tenant.Watcher{Path: r.set.Access.Tenants, Interval: tenantsInterval, Set: a.set,
		Apply: func(t *tenant.Table) {
			// Before the start nobody else touches the owner's fields.
			if !r.running {
				r.own.tenants.Use(r.own.now(), t)
				return
			}
			r.own.do(func() { r.own.tenants.Use(r.own.now(), t) })
		},
		Failed: func(err error) {
			r.set.Logger.Error("tenants not read again", "file", r.set.Access.Tenants, "error", err.Error())
		}}
	if _, err = a.watch.Reload(); err != nil {
		return &TenantsError{r.set.Access.Tenants, err}
	}
	return nil
}

// TenantsError is a file of tenants that keeps a router from starting.
type TenantsError struct {
	Path  string
	cause error
}

func (e *TenantsError) Error() string { return e.cause.Error() }
func (e *TenantsError) Unwrap() error { return e.cause }

// watchTenants begins to look for changes of the file.
func (r *Router) watchTenants(ctx context.Context) {
	if r.access.watch != nil {
		r.background.Go(func() { r.access.watch.Run(ctx) })
	}
}

func unauthorized() *failure {
	return &failure{status: http.StatusUnauthorized, typ: "invalid_request_error", message: "no valid API key; send it as Authorization: Bearer KEY", terminal: journal.Rejected,
		reason: model.ReasonUnauthorized, code: ptr("invalid_api_key"), hasCode: true, hasParam: true}
}

// uncontrolled refuses an order of the lifecycle.
func uncontrolled() *failure {
	f := unauthorized()
	f.terminal, f.reason = "", "" // an order has no row in the journal
	f.message = "no control token; send the one that the router was started with (--control-token) as Authorization: Bearer TOKEN, or the key of a tenant that may control"
	return f
}

// identify finds the tenant of a request by its headers.
func (r *Router) identify(h http.Header) (*tenant.Tenant, *failure) {
	t, err := r.access.set.FindIn(h)
	if err != nil {
		return nil, unauthorized()
	}
	return t, nil
}

// seatOf takes a seat within the tenant's limits. It runs in the owner's goroutine.
func (q *request) seatOf(o *owner) *failure {
	s, after, why := o.tenants.Admit(o.now(), q.tenant, 0)
	if s == nil {
		return tenantRefusal(o, why, after)
	}
	q.seat = s
	return nil
}

// wanted notes that the tenant of a request wants a seat while the router has none: the next that
// comes free is kept from a tenant above its share. It runs in the owner's goroutine.
func (o *owner) wanted(q *request) {
	if s, _, _ := o.tenants.Admit(o.now(), q.tenant, 0); s != nil {
		o.tenants.Done(o.now(), s, 0)
	}
}

// chargeTokens asks the tenant's bucket for what the request is expected to take.
func (q *request) chargeTokens(o *owner) *failure {
	if q.seat == nil || q.charged {
		return nil
	}
	q.charged = true
	after, why := o.tenants.Charge(o.now(), q.seat, q.input+max(0, q.expect))
	if why == tenant.Admitted {
		return nil
	}
	return tenantRefusal(o, why, after)
}

// tenantRefusal words what the limiter said.
func tenantRefusal(o *owner, why tenant.Reason, after float64) *failure {
	if why == tenant.Removed {
		return unauthorized()
	}
	if why == tenant.Full {
		return overloaded(model.ReasonInflight, journal.Rejected, "router in-flight limit reached", o.n.drain.after(1))
	}
	return overloaded(model.ReasonTenant, journal.Rejected, "the limits of this API key are reached: "+why.String(), int(math.Ceil(min(after, 3600))))
}

// foreignSite reports whether a browser sent the request for a page of another site: it may
// reach what the operator's machine reaches, without being allowed to read the answer.
func foreignSite(q *http.Request) bool {
	switch q.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return true
	}
	origin := q.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || u.Host != q.Host
}

// guarded lets only who controls the fleet through.
func (r *Router) guarded(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if foreignSite(q) {
			f := coded(http.StatusForbidden, "foreign_site", "a web page of another site may not change the lifecycle")
			f.typ, f.hasParam = badRequest, true
			told(f, false)
			writeBody(w, f.status, f.body())
			return
		}
		if err := r.access.control.AllowIn(r.access.set, q.Header); err != nil {
			if !errors.Is(err, tenant.ErrUnauthorized) {
				r.set.Logger.Error("control route", "error", err.Error())
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			f := uncontrolled()
			told(f, false)
			writeBody(w, f.status, f.body())
			return
		}
		h(w, q)
	}
}

// tenantSeries writes each tenant's counters.
func (o *owner) tenantSeries(s *series) {
	for _, x := range o.tenants.Stats(o.now()) {
		name := labelValue(x.Tenant)
		s.put("router_tenant_inflight", float64(x.Inflight), name)
		s.put("router_tenant_share", float64(x.Share), name)
		s.count("router_tenant_admitted_total", int(x.Admitted), name)
		s.count("router_tenant_tokens_total", int(x.Used), name)
		for _, why := range tenant.Reasons() {
			if n := x.Refused(why); n > 0 {
				s.count("router_tenant_refused_total", int(n), name, why.String())
			}
		}
	}
}

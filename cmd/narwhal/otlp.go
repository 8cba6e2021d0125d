package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/narwhal-fleet/narwhal/runtime/router"
)

// traceEndLimit is what the last spans get at the end.
const traceEndLimit = 3 * time.Second

// tracesWanted reports whether the environment names a collector.
func tracesWanted(getenv func(string) string) bool {
	return getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// traced gives a router's configuration a tracer if the environment asks for traces. The
// function that it returns sends the last spans and ends it; spans that cannot be sent are
// given up, they never hold a request.
func traced(ctx context.Context, cfg *router.Config) (stop func(), err error) {
	if !tracesWanted(os.Getenv) {
		return func() {}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("make the exporter of traces: %w", err)
	}
	// The environment's OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last and win.
	res, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "narwhal"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describe this process to the collector: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	cfg.Tracer = otlpTracer{provider.Tracer("github.com/narwhal-fleet/narwhal/runtime/router"), propagation.TraceContext{}}
	return func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceEndLimit)
		defer cancel()
		if err := provider.Shutdown(last); err != nil && cfg.Logger != nil {
			cfg.Logger.Warn("the last traces are lost", "error", err.Error())
		}
	}, nil
}

// otlpTracer is a router.Tracer.
type otlpTracer struct {
	t    trace.Tracer
	wire propagation.TraceContext
}

func (o otlpTracer) Extract(ctx context.Context, h http.Header) context.Context {
	return o.wire.Extract(ctx, propagation.HeaderCarrier(h))
}

func (o otlpTracer) Inject(ctx context.Context, h http.Header) {
	o.wire.Inject(ctx, propagation.HeaderCarrier(h))
}

// Start makes a server span of the request and client spans of the legs.
func (o otlpTracer) Start(ctx context.Context, name string, at time.Time, attrs ...router.Attr) (context.Context, router.Span) {
	kind := trace.SpanKindClient
	switch {
	case strings.HasSuffix(name, ".request"):
		kind = trace.SpanKindServer
	case strings.HasSuffix(name, ".admission"):
		kind = trace.SpanKindInternal
	}
	ctx, s := o.t.Start(ctx, name, trace.WithTimestamp(at), trace.WithSpanKind(kind), trace.WithAttributes(attributes(attrs)...))
	return ctx, otlpSpan{s}
}

type otlpSpan struct{ s trace.Span }

func (o otlpSpan) Set(attrs ...router.Attr) { o.s.SetAttributes(attributes(attrs)...) }

func (o otlpSpan) End(failure string) {
	if failure != "" {
		o.s.SetStatus(codes.Error, failure)
	}
	o.s.End()
}

func (o otlpSpan) TraceID() string {
	if c := o.s.SpanContext(); c.IsSampled() {
		return c.TraceID().String()
	}
	return ""
}

func attributes(in []router.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(in))
	for _, a := range in {
		switch v := a.Value.(type) {
		case string:
			out = append(out, attribute.String(a.Key, v))
		case int:
			out = append(out, attribute.Int(a.Key, v))
		case bool:
			out = append(out, attribute.Bool(a.Key, v))
		case float64:
			out = append(out, attribute.Float64(a.Key, v))
		}
	}
	return out
}

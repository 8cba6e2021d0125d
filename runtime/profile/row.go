package profile

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// Row is one engine's curve in the store. Pointers are optional fields.
type Row struct {
	IID              string  `json:"iid"`
	GenerationDigest *string `json:"generation_digest"`

	TTFTA float64 `json:"ttft_a"`
	TTFTB float64 `json:"ttft_b"`
	TTFTC float64 `json:"ttft_c"`

	TPOTSlope        float64 `json:"tpot_slope"`
	TPOTIntercept    float64 `json:"tpot_intercept"`
	TPOTRequestSlope float64 `json:"tpot_request_slope"`

	KVCapacityTokens  *int    `json:"kv_capacity_tokens,omitempty"`
	DecodeMinRequests int     `json:"decode_min_requests"`
	DecodeMaxRequests int     `json:"decode_max_requests"`
	DecodeMinKVTokens int     `json:"decode_min_kv_tokens"`
	DecodeMaxKVTokens int     `json:"decode_max_kv_tokens"`
	DecodeFitMAPE     float64 `json:"decode_fit_mape"`
	DecodeCVMAPE      float64 `json:"decode_cv_mape"`

	PrefillMinTokens      *int `json:"prefill_min_tokens,omitempty"`
	PrefillMaxTokens      *int `json:"prefill_max_tokens,omitempty"`
	DecodeMinOutputTokens *int `json:"decode_min_output_tokens,omitempty"`
	DecodeMaxOutputTokens *int `json:"decode_max_output_tokens,omitempty"`

	TTFTBlockTokens *int     `json:"ttft_block_tokens,omitempty"`
	TTFTSplit       *float64 `json:"ttft_split,omitempty"`

	CachedTTFTA           *float64 `json:"cached_ttft_a,omitempty"`
	CachedTTFTB           *float64 `json:"cached_ttft_b,omitempty"`
	CachedTTFTC           *float64 `json:"cached_ttft_c,omitempty"`
	CachedTTFTD           *float64 `json:"cached_ttft_d,omitempty"`
	CachedCVMAPE          *float64 `json:"cached_cv_mape,omitempty"`
	CachedMinPrefixTokens *int     `json:"cached_min_prefix_tokens,omitempty"`
	CachedMaxPrefixTokens *int     `json:"cached_max_prefix_tokens,omitempty"`
	CachedMinSuffixTokens *int     `json:"cached_min_suffix_tokens,omitempty"`
	CachedMaxSuffixTokens *int     `json:"cached_max_suffix_tokens,omitempty"`

	ColocatedGroup          *string  `json:"colocated_group,omitempty"`
	ColocatedTargetRole     *string  `json:"colocated_target_role,omitempty"`
	ColocatedPrefillEngines *int     `json:"colocated_prefill_engines,omitempty"`
	ColocatedDecodeEngines  *int     `json:"colocated_decode_engines,omitempty"`
	ColocatedPrefillRPS     *float64 `json:"colocated_prefill_rps,omitempty"`
	ColocatedDecodeRPS      *float64 `json:"colocated_decode_rps,omitempty"`
}

// NewRow binds a fitted curve to an engine and its generation.
func NewRow(iid, generationDigest string, c Curve, rep Report) Row {
	r := Row{IID: iid, TTFTA: c.A, TTFTB: c.B, TTFTC: c.C,
		TPOTSlope: c.Slope, TPOTIntercept: c.Intercept, TPOTRequestSlope: c.RequestSlope,
		DecodeMinRequests: c.MinRequests, DecodeMaxRequests: c.MaxRequests,
		DecodeMinKVTokens: c.MinKVTokens, DecodeMaxKVTokens: c.MaxKVTokens,
		DecodeFitMAPE: rep.Decode.MAPE, DecodeCVMAPE: rep.DecodeCV}
	if generationDigest != noDigest {
		r.GenerationDigest = &generationDigest
	}
	r.KVCapacityTokens = optional(c.KVCapacity)
	r.PrefillMinTokens, r.PrefillMaxTokens = optional(c.PrefillMin), optional(c.PrefillMax)
	if c.BlockTokens > 0 {
		r.TTFTBlockTokens, r.TTFTSplit = optional(c.BlockTokens), &c.Split
	}
	return r
}

// Curve returns the row's cold curve.
func (r Row) Curve() Curve {
	return Curve{A: r.TTFTA, B: r.TTFTB, C: r.TTFTC,
		BlockTokens: value(r.TTFTBlockTokens), Split: value(r.TTFTSplit),
		PrefillMin: value(r.PrefillMinTokens), PrefillMax: value(r.PrefillMaxTokens),
		Slope: r.TPOTSlope, RequestSlope: r.TPOTRequestSlope, Intercept: r.TPOTIntercept,
		MinRequests: r.DecodeMinRequests, MaxRequests: r.DecodeMaxRequests,
		MinKVTokens: r.DecodeMinKVTokens, MaxKVTokens: r.DecodeMaxKVTokens,
		KVCapacity: value(r.KVCapacityTokens)}
}

func optional(v int) *int {
	if v == 0 {
		return nil
	}
	return &v
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// What no engine reaches: prices built from more than that would not be finite, or would not
// tell engines apart.
const (
	maxSeconds = 3600 // of a request, a token, or a pair of tokens
	maxCount   = 1e9  // requests or tokens at once
)

func (r Row) check() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(r.IID != "", "iid is empty")
	bad(r.GenerationDigest == nil || digestForm.MatchString(*r.GenerationDigest), "generation_digest: want sha256 and 64 hex digits")
	for _, f := range []struct {
		name string
		v    *float64
	}{{"ttft_a", &r.TTFTA}, {"ttft_b", &r.TTFTB}, {"ttft_c", &r.TTFTC}, {"tpot_slope", &r.TPOTSlope},
		{"tpot_intercept", &r.TPOTIntercept}, {"tpot_request_slope", &r.TPOTRequestSlope},
		{"decode_fit_mape", &r.DecodeFitMAPE}, {"decode_cv_mape", &r.DecodeCVMAPE}, {"ttft_split", r.TTFTSplit},
		{"cached_ttft_a", r.CachedTTFTA}, {"cached_ttft_b", r.CachedTTFTB}, {"cached_ttft_c", r.CachedTTFTC},
		{"cached_ttft_d", r.CachedTTFTD}, {"cached_cv_mape", r.CachedCVMAPE}} {
		bad(f.v == nil || *f.v >= 0 && !math.IsInf(*f.v, 0), "%s: want a number ≥ 0", f.name)
	}
	for _, f := range []struct {
		name string
		v    *float64
	}{{"ttft_a", &r.TTFTA}, {"ttft_b", &r.TTFTB}, {"ttft_c", &r.TTFTC}, {"tpot_slope", &r.TPOTSlope},
		{"tpot_intercept", &r.TPOTIntercept}, {"tpot_request_slope", &r.TPOTRequestSlope},
		{"cached_ttft_a", r.CachedTTFTA}, {"cached_ttft_b", r.CachedTTFTB}, {"cached_ttft_c", r.CachedTTFTC}, {"cached_ttft_d", r.CachedTTFTD}} {
		bad(f.v == nil || *f.v <= maxSeconds, "%s: want at most %d s", f.name, maxSeconds)
	}
	between := func(name string, lo, hi *int) {
		bad(hi == nil || *hi <= maxCount, "%s maximum: want at most %d", name, int(maxCount))
		bad(lo == nil || *lo >= 1, "%s minimum: want ≥ 1", name)
		bad(hi == nil || *hi >= 1, "%s maximum: want ≥ 1", name)
		bad(lo == nil || hi == nil || *lo <= *hi, "%s: minimum above maximum", name)
	}
	between("decode requests", &r.DecodeMinRequests, &r.DecodeMaxRequests)
	between("decode KV tokens", &r.DecodeMinKVTokens, &r.DecodeMaxKVTokens)
	between("prefill tokens", r.PrefillMinTokens, r.PrefillMaxTokens)
	between("decode output tokens", r.DecodeMinOutputTokens, r.DecodeMaxOutputTokens)
	between("cached prefix tokens", r.CachedMinPrefixTokens, r.CachedMaxPrefixTokens)
	between("cached suffix tokens", r.CachedMinSuffixTokens, r.CachedMaxSuffixTokens)
	bad(r.KVCapacityTokens == nil || *r.KVCapacityTokens <= maxCount, "kv_capacity_tokens: want at most %d", int(maxCount))
	bad(r.KVCapacityTokens == nil || *r.KVCapacityTokens >= r.DecodeMaxKVTokens, "kv_capacity_tokens: below decode_max_kv_tokens")
	bad((r.TTFTBlockTokens == nil) == (r.TTFTSplit == nil), "ttft_block_tokens and ttft_split: want both or neither")
	bad(allOrNone(r.CachedTTFTA != nil, r.CachedTTFTB != nil, r.CachedTTFTC != nil, r.CachedTTFTD != nil, r.CachedCVMAPE != nil,
		r.CachedMinPrefixTokens != nil, r.CachedMaxPrefixTokens != nil, r.CachedMinSuffixTokens != nil, r.CachedMaxSuffixTokens != nil),
		"cached_*: want all nine fields or none")
	bad(allOrNone(r.ColocatedGroup != nil, r.ColocatedTargetRole != nil, r.ColocatedPrefillEngines != nil,
		r.ColocatedDecodeEngines != nil, r.ColocatedPrefillRPS != nil, r.ColocatedDecodeRPS != nil), "colocated_*: want all six fields or none")
	return errors.Join(errs...)
}

func allOrNone(set ...bool) bool {
	for _, s := range set {
		if s != set[0] {
			return false
		}
	}
	return true
}

// key orders rows by engine, group, mix and role, and tells two rows apart.
func (r Row) key() string {
	return strings.Join([]string{r.IID, value(r.ColocatedGroup), fmt.Sprintf("%06d/%06d", value(r.ColocatedPrefillEngines),
		value(r.ColocatedDecodeEngines)), value(r.ColocatedTargetRole)}, "\x00")
}

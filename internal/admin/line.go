package admin

import (
	"context"
	"log/slog"

	"counterfoil/classify"
	"counterfoil/internal/journal"
	"counterfoil/keystore"
)

// Observe returns an observer that counts and logs. Both are needed.
func Observe(m *Metrics, log *slog.Logger) journal.Observer {
	write := Lines(log)
	return journal.Observer{
		Done: func(l journal.Line) {
			m.CallDone(&l)
			write(l)
		},
		Settled: settlements(log),
		Diverged: func(k keystore.Key, upstream string) {
			m.diverged.WithLabelValues(upstream).Inc()
			log.LogAttrs(context.Background(), slog.LevelWarn, "an agent does not repeat its earlier steps: a new effect comes before all of them were repeated",
				append(identity(k), slog.String("upstream", upstream))...)
		},
		Alarm: func(a journal.Alarm) {
			m.alarms.WithLabelValues(a.Upstream, a.Kind).Inc()
			log.LogAttrs(context.Background(), slog.LevelWarn, "alarm: "+a.Text, append(identity(a.Key), slog.String("upstream", a.Upstream), slog.String("kind", a.Kind))...)
		},
		Trouble: func(what string, k keystore.Key, err error) {
			m.troubled(err)
			attrs := []slog.Attr{slog.Any("error", err)}
			if k != (keystore.Key{}) {
				attrs = append(attrs, identity(k)...)
			}
			log.LogAttrs(context.Background(), slog.LevelError, what, attrs...)
		},
	}
}

// Lines returns what writes the canonical line of a call: its identity and what
// became of it, never target, header or body.
func Lines(log *slog.Logger) func(journal.Line) {
	return func(l journal.Line) {
		ctx, level := context.Background(), severity(&l)
		if !log.Enabled(ctx, level) {
			return
		}
		attrs := append(make([]slog.Attr, 0, 18), identity(l.Key)...)
		attrs = append(attrs,
			slog.Uint64("attempts", uint64(l.Attempts)), slog.String("upstream", l.Upstream), slog.String("method", l.Method),
			slog.String("class", l.Class.String()), slog.String("outcome", string(l.Outcome)))
		if l.Problem != "" {
			attrs = append(attrs, slog.String("problem", string(l.Problem)))
		}
		if l.State != keystore.None {
			attrs = append(attrs, slog.String("state", l.State.String()))
		}
		if l.Sent {
			attrs = append(attrs, slog.String("evidence", l.Evidence.String()), slog.String("judged", l.Judged.String()))
		}
		if l.Status != 0 {
			attrs = append(attrs, slog.Int("status", l.Status))
		}
		if l.Lookups > 0 {
			attrs = append(attrs, slog.Int("lookups", l.Lookups))
		}
		if l.Resends > 0 {
			attrs = append(attrs, slog.Int("resends", l.Resends))
		}
		attrs = append(attrs, slog.Duration("took", l.Took))
		log.LogAttrs(ctx, level, "call", attrs...)
	}
}

// settlements returns what writes of calls that nobody's request was there for.
func settlements(log *slog.Logger) func(journal.Settlement) {
	return func(s journal.Settlement) {
		level, text := slog.LevelInfo, "a call in doubt is settled"
		if s.To == keystore.Unknown {
			level, text = slog.LevelWarn, "a call is unknown and waits for a person: sidecar unknown lists it"
		}
		attrs := append(identity(s.Key), slog.String("upstream", s.Upstream), slog.String("state", s.To.String()))
		if s.Why != "" {
			attrs = append(attrs, slog.String("because", s.Why))
		}
		attrs = append(attrs, slog.Int("lookups", s.Lookups), slog.Int("resends", s.Resends))
		log.LogAttrs(context.Background(), level, text, attrs...)
	}
}

func identity(k keystore.Key) []slog.Attr {
	return []slog.Attr{
		slog.String("namespace", k.Namespace), slog.String("run", k.Run), slog.String("turn", k.Turn), slog.String("call", k.Call),
	}
}

// severity is an error where the sidecar cannot do its work, and a warning
// where somebody has to act or an effect is in doubt.
func severity(l *journal.Line) slog.Level {
	switch {
	case l.Problem == journal.JournalUnavailable:
		return slog.LevelError
	case l.State == keystore.Unknown, l.State == keystore.InDoubt,
		l.Outcome == journal.OutcomeUnknown, l.Problem == journal.RunPaused,
		l.Sent && l.Judged == classify.Ambiguous:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

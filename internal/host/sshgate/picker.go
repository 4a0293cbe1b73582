package sshgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
)

// refreshEvery is how old the list of the picker can be.
const refreshEvery = 2 * time.Second

// Bounds of the terminal for which the list is drawn, in characters: each takes memory here, and the largest that a client can have would take gigabytes.
const maxDrawnRows, maxDrawnCols = 200, 500

func drawn(s Size) (cols, rows int) {
	return min(int(s.Cols), maxDrawnCols), min(int(s.Rows), maxDrawnRows)
}

// choose lets the client choose a sandbox; "" is none. The size is the terminal's at the end.
func (s *session) choose(ctx context.Context) (name string, size *Size, err error) {
	size = s.size
	ctx, cancel := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	list := func() tea.Msg {
		rows, err := s.c.s.o.Sandboxes.List(ctx)
		return listed{rows, err}
	}
	cols, rows := drawn(*s.size)
	p := tea.NewProgram(picker{list: list}, tea.WithContext(ctx), tea.WithInput(s.in.keys(ctx)), tea.WithOutput(terminal{s.ch}), tea.WithoutSignals(),
		tea.WithEnvironment([]string{"TERM=" + s.term}), tea.WithWindowSize(cols, rows))
	resizing.Go(func() {
		over := s.in.over
		for {
			select {
			case now := <-s.resized:
				size = &now
				cols, rows := drawn(now)
				p.Send(tea.WindowSizeMsg{Width: cols, Height: rows})
			case <-over:
				over = nil
				p.Quit()
			case <-ctx.Done():
				return
			}
		}
	})
	last, err := p.Run()
	cancel() // gives the input to who comes next
	resizing.Wait()
	if m, ok := last.(picker); ok {
		name = m.chosen
	}
	return name, size, err
}

type listed struct {
	rows []Row
	err  error
}

// picker is the list on a terminal.
type picker struct {
	list      tea.Cmd
	rows      []Row
	err       error
	known     bool // rows have been there
	at        int  // in shown
	filter    string
	filtering bool
	height    int
	chosen    string
}

func (m picker) Init() tea.Cmd { return m.list }

// shown are the rows that the filter lets through.
func (m picker) shown() (all []Row) {
	for _, r := range m.rows {
		if strings.Contains(strings.ToLower(r.Name+" "+r.State+" "+r.What), strings.ToLower(m.filter)) {
			all = append(all, r)
		}
	}
	return all
}

func (m picker) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case listed:
		name := m.name()
		m.rows, m.err, m.known = msg.rows, msg.err, true
		for i, r := range m.shown() {
			if r.Name == name { // who is chosen stays so when others come and go
				m.at = i
			}
		}
		m.at = m.within(m.at)
		return m, tea.Tick(refreshEvery, func(time.Time) tea.Msg { return m.list() })
	case tea.WindowSizeMsg:
		m.height = msg.Height
	case tea.KeyPressMsg:
		return m.key(msg)
	}
	return m, nil
}

func (m picker) name() string {
	if rows := m.shown(); m.at < len(rows) {
		return rows[m.at].Name
	}
	return ""
}

func (m picker) within(at int) int { return max(min(at, len(m.shown())-1), 0) }

func (m picker) key(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch k.String() {
	case "ctrl+c":
		return m, tea.Quit
	case "enter":
		if m.chosen = m.name(); m.chosen != "" {
			return m, tea.Quit
		}
		return m, nil
	case "up":
		m.at = m.within(m.at - 1)
		return m, nil
	case "down":
		m.at = m.within(m.at + 1)
		return m, nil
	case "esc":
		m.filter, m.filtering = "", false
		return m, nil
	}
	if m.filtering {
		if k.String() == "backspace" {
			if r := []rune(m.filter); len(r) > 0 {
				m.filter = string(r[:len(r)-1])
			}
		} else if len(m.filter) < maxField {
			m.filter += k.Text
		}
		m.at = m.within(m.at)
		return m, nil
	}
	switch k.String() {
	case "q":
		return m, tea.Quit
	case "j":
		m.at = m.within(m.at + 1)
	case "k":
		m.at = m.within(m.at - 1)
	case "/":
		m.filtering = true
	}
	return m, nil
}

func (m picker) View() tea.View {
	rows := m.shown()
	var b strings.Builder
	b.WriteString("sandbox-agent: choose a sandbox\n\n")
	const frame = 6 // lines that are no rows
	room := max(m.height-frame, 1)
	from := max(0, min(m.at-room/2, len(rows)-room))
	for i, r := range rows[from:min(len(rows), from+room)] {
		mark := "  "
		if from+i == m.at {
			mark = "> "
		}
		fmt.Fprintf(&b, "%s%-24s %-10s %5s  %s\n", mark, line(r.Name), line(r.State), age(time.Since(r.Created)), line(r.What))
	}
	switch {
	case !m.known:
		b.WriteString("  ...\n")
	case len(rows) == 0 && m.filter == "" && m.err == nil:
		b.WriteString("  There is none: `sandbox-agent up NAME` makes one.\n")
	case m.err != nil && !errors.Is(m.err, context.Canceled):
		b.WriteString("  " + line(shown(m.err)) + "\n")
	}
	if m.filtering || m.filter != "" {
		b.WriteString("\n/" + line(m.filter) + "\n")
	}
	b.WriteString("\n[Enter] open  [j/k] down, up  [/] filter  [q] quit")
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

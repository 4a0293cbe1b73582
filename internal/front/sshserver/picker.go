package sshserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/sandbox-agent/sandbox-agent/internal/text"
)

// refreshEvery is how old the list of the picker can be.
const refreshEvery = 2 * time.Second

// Bounds of the terminal for which the list is drawn, in characters: each takes memory here, and the largest that a
// client can have would take gigabytes.
const maxDrawnRows, maxDrawnCols = 200, 500

func drawn(s Size) (cols, rows int) {
	return min(int(s.Cols), maxDrawnCols), min(int(s.Rows), maxDrawnRows)
}

// choose lets the client choose a sandbox; "" is none. The size is the terminal's at the end.
func (s *channel) choose(ctx context.Context) (name string, size *Size, err error) {
	size = s.size
	ctx, cancel := context.WithCancel(ctx)
	var resizing sync.WaitGroup
	list := func() tea.Msg {
		rows, err := s.c.s.o.Sandboxes.List(ctx)
		return listed{rows, err}
	}
	cols, rows := drawn(*s.size)
	act := func(m act) tea.Cmd {
		return func() tea.Msg {
			do := s.c.s.o.Sandboxes.Create
			if m.remove {
				do = s.c.s.o.Sandboxes.Remove
			}
			s.c.s.o.Log.Info("picker", "sandbox", m.name, "remove", m.remove)
			return acted{m, do(ctx, m.name)}
		}
	}
	p := tea.NewProgram(picker{list: list, act: act}, tea.WithContext(ctx), tea.WithInput(s.in.keys(ctx)), tea.WithOutput(terminal{s.ch}),
		tea.WithoutSignals(),
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
	rows []SandboxInfo
	err  error
}

// act is the creation or removal of a sandbox.
type act struct {
	name   string
	remove bool
}

// acted is the end of an act.
type acted struct {
	act
	err error
}

// picker is the list on a terminal.
type picker struct {
	list      tea.Cmd
	act       func(act) tea.Cmd
	rows      []SandboxInfo
	err       error
	known     bool // rows have been there
	at        int  // in shown
	filter    string
	filtering bool
	height    int
	chosen    string
	naming    bool // newName is being typed
	newName   string
	removing  string // the sandbox whose removal has to be confirmed
	busy      string // the act in progress; keys have to wait for it
	failure   string // of the last act
}

func (m picker) Init() tea.Cmd { return m.list }

// shown are the rows that the filter lets through.
func (m picker) shown() (all []SandboxInfo) {
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
	case acted:
		m.busy = ""
		switch {
		case msg.err != nil:
			m.failure = shown(msg.err)
		case msg.remove:
			m.rows = slices.DeleteFunc(slices.Clone(m.rows), func(r SandboxInfo) bool { return r.Name == msg.name })
			m.at = m.within(m.at)
		default:
			m.chosen = msg.name
			return m, tea.Quit
		}
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
	switch {
	case k.String() == "ctrl+c":
		return m, tea.Quit
	case m.busy != "":
		return m, nil
	case m.naming:
		return m.typeName(k)
	case m.removing != "":
		return m.confirm(k)
	}
	m.failure = ""
	switch k.String() {
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
		m.filter = typed(m.filter, k)
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
	case "n":
		m.naming, m.newName = true, ""
	case "d":
		m.removing = m.name()
	}
	return m, nil
}

// typed is a text after one more key.
func typed(t string, k tea.KeyPressMsg) string {
	if k.String() == "backspace" {
		r := []rune(t)
		return string(r[:max(len(r)-1, 0)])
	}
	if len(t) < maxField {
		t += k.Text
	}
	return t
}

// typeName takes a key of the new sandbox's name.
func (m picker) typeName(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	switch k.String() {
	case "esc":
		m.naming = false
	case "enter":
		m.naming = false
		if m.newName != "" {
			m.busy = "creating " + m.newName
			return m, m.act(act{name: m.newName})
		}
	default:
		m.newName = typed(m.newName, k)
	}
	return m, nil
}

// confirm takes the answer to whether a sandbox is to be removed.
func (m picker) confirm(k tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	name := m.removing
	m.removing = ""
	if k.String() != "y" {
		return m, nil
	}
	m.busy = "removing " + name
	return m, m.act(act{name: name, remove: true})
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
		fmt.Fprintf(&b, "%s%-24s %-10s %5s  %s\n", mark, line(r.Name), line(r.State), text.Age(time.Since(r.Created)), line(r.What))
	}
	switch {
	case !m.known:
		b.WriteString("  ...\n")
	case len(rows) == 0 && m.filter == "" && m.err == nil:
		b.WriteString("  There is none: n creates one.\n")
	case m.err != nil && !errors.Is(m.err, context.Canceled):
		b.WriteString("  " + line(shown(m.err)) + "\n")
	}
	switch {
	case m.busy != "":
		b.WriteString("\n" + line(m.busy) + " ...\n")
	case m.naming:
		b.WriteString("\nname of the new sandbox: " + line(m.newName) + "\n")
	case m.removing != "":
		b.WriteString("\nremove " + line(m.removing) + " with its files? [y/N]\n")
	case m.failure != "":
		b.WriteString("\nerror: " + m.failure + "\n")
	case m.filtering || m.filter != "":
		b.WriteString("\n/" + line(m.filter) + "\n")
	}
	b.WriteString("\n[Enter] open  [j/k] down, up  [n] new  [d] down  [/] filter  [q] quit")
	v := tea.NewView(b.String())
	v.AltScreen = true
	return v
}

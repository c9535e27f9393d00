//go:build unix

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
)

// A Process is a command that was started. Its methods may be called
// concurrently.
type Process struct {
	// PID is the command's process id.
	PID int

	keeper *exec.Cmd
	orders chan order
	group  grouping
	tty    *os.File
	done   chan struct{} // closed once everything below is final
	exit   Exit
	err    error
}

// Start starts a command. The error is a *CommandError where the fault lies in
// the command: its Err is exec.ErrNotFound, fs.ErrNotExist, fs.ErrPermission or
// another of the system's. Each Process must be waited for, and only one may run
// at a time: see [Process.Wait].
func Start(c Command) (*Process, error) {
	path, err := exec.LookPath(c.Args[0])
	if err != nil {
		return nil, &CommandError{err}
	}
	if err := adopt(); err != nil {
		return nil, err
	}
	p := &Process{orders: make(chan order, 1), group: ownGroup, done: make(chan struct{})}
	if p.tty, err = os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		p.group = sharedGroup
	}
	reports, err := p.startKeeper(c, &start{Path: path, Args: c.Args, Grace: c.Grace, Group: p.group})
	if err != nil {
		p.closeTerminal()
		return nil, fmt.Errorf("starting the command's keeper: %w", err)
	}
	first, err := p.begin(path, json.NewDecoder(reports), reports)
	if err != nil {
		<-p.done
		return nil, err
	}
	p.PID = first.PID
	return p, nil
}

// startKeeper starts the keeper with its two pipes, gives it its first order and
// returns the end that it reports to.
func (p *Process) startKeeper(c Command, first *start) (*os.File, error) {
	ordersRead, ordersWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersRead.Close()
	reportsRead, reportsWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersWrite.Close())
	}
	defer reportsWrite.Close()
	p.keeper = exec.Command(c.Keeper[0], c.Keeper[1:]...) //nolint:gosec,noctx // to run what it is told is what it is for, and its end is End's
	p.keeper.Env, p.keeper.Stdin, p.keeper.Stdout, p.keeper.Stderr = c.Env, c.Stdin, c.Stdout, c.Stderr
	p.keeper.ExtraFiles = []*os.File{ordersRead, reportsWrite}
	p.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: p.group == ownGroup}
	if err := p.keeper.Start(); err != nil {
		return nil, errors.Join(err, ordersWrite.Close(), reportsRead.Close())
	}
	p.orders <- order{Start: first}
	go p.send(ordersWrite)
	return reportsRead, nil
}

// send writes orders until the keeper is gone.
func (p *Process) send(to *os.File) {
	defer to.Close()
	encoder := json.NewEncoder(to)
	for {
		select {
		case o := <-p.orders:
			if err := encoder.Encode(o); err != nil {
				return // a keeper that is gone is noticed where its reports end
			}
		case <-p.done:
			return
		}
	}
}

// begin waits for the first report, and leaves the last one to a goroutine.
func (p *Process) begin(path string, reports *json.Decoder, file io.Closer) (report, error) {
	var first report
	err := reports.Decode(&first)
	go p.follow(reports, file)
	switch {
	case err != nil:
		return first, fmt.Errorf("the command's keeper ended before it began: %w", err)
	case first.Failed != 0:
		return first, &CommandError{&fs.PathError{Op: "exec", Path: path, Err: first.Failed}}
	}
	return first, nil
}

// follow waits for the last report and the keeper's end.
func (p *Process) follow(reports *json.Decoder, file io.Closer) {
	defer close(p.done)
	defer p.closeTerminal()
	defer file.Close()
	var last report
	err := reports.Decode(&last)
	ended := p.keeper.Wait()
	if err == nil && last.Exit != nil {
		p.exit = *last.Exit
		return
	}
	p.exit.Left = endAll()
	p.err = fmt.Errorf("the command's keeper is gone (%s), and the command with it", describe(ended))
}

func describe(err error) string {
	if err == nil {
		return "it ended"
	}
	return err.Error()
}

func (p *Process) closeTerminal() {
	if p.tty != nil {
		_ = p.tty.Close()
	}
}

// Signal passes a signal on to the command, unless it was typed on the terminal:
// then the command has it already, as its whole group does. isTyped reports that.
func (p *Process) Signal(s syscall.Signal) (isTyped bool) {
	if p.group == sharedGroup && hasKey(s) && isForeground(p.tty) {
		return true
	}
	p.order(order{Signal: s})
	return false
}

// hasKey reports whether a terminal sends s for a key.
func hasKey(s syscall.Signal) bool { return s == syscall.SIGINT || s == syscall.SIGQUIT }

// End ends the command and all its descendants: SIGTERM, the grace, SIGKILL. It
// does not wait for that.
func (p *Process) End() { p.order(order{End: true}) }

func (p *Process) order(o order) {
	select {
	case p.orders <- o:
	case <-p.done:
	}
}

// Done is closed when Wait would return.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns how the command ended, once nothing of it runs any more. An error
// means that its keeper was killed: how the command ended is not known then.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Command vcsim serves vCenters of govmomi's simulator, each with a small inventory, until its standard input ends.
//
// Two parts of a vCenter that the simulator leaves out are added with its documented way to replace objects: a clone has the vApp
// configuration of its template, and a storage pod recommends a datastore for a clone.
//
// The first line of its output is the address of a server with which tests start vCenters, and change and show what is in them. With
// the arguments client, URL and two names it is another client of a vCenter.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

// All vCenters, by their number.
type server struct {
	sync.Mutex
	all []*vCenter
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "client" {
		if err := client(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			log.Fatal(err)
		}
		return
	}
	log.SetOutput(io.Discard)
	s := new(server)
	routes := http.NewServeMux()
	routes.HandleFunc("POST /vcenters", answered(s.start))
	routes.HandleFunc("DELETE /vcenters/{number}", s.with((*vCenter).stop))
	routes.HandleFunc("GET /vcenters/{number}/vms", s.with((*vCenter).vms))
	routes.HandleFunc("POST /vcenters/{number}/vms", s.with((*vCenter).create))
	routes.HandleFunc("POST /vcenters/{number}/disks", s.with((*vCenter).attach))
	routes.HandleFunc("POST /vcenters/{number}/files", s.with((*vCenter).hasFile))
	routes.HandleFunc("POST /vcenters/{number}/change", s.with((*vCenter).change))
	routes.HandleFunc("DELETE /vcenters/{number}/vms/{uuid}", s.with((*vCenter).end))
	routes.HandleFunc("DELETE /vcenters/{number}/sessions", s.with((*vCenter).expire))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.SetOutput(os.Stderr)
		log.Fatal(err)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	go http.Serve(listener, routes)
	// The process that started it is gone.
	io.Copy(io.Discard, bufio.NewReader(os.Stdin))
	s.Lock()
	for _, one := range s.all {
		one.model.Remove()
	}
}

func (s *server) start(r *http.Request) (any, error) {
	var wanted options
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		return nil, err
	}
	one, err := newVCenter(wanted)
	if err != nil {
		return nil, err
	}
	s.Lock()
	defer s.Unlock()
	s.all = append(s.all, one)
	return map[string]any{"number": len(s.all) - 1, "host": one.url.Host}, nil
}

// with carries a request out on the vCenter that its path names.
func (s *server) with(act func(*vCenter, *http.Request) (any, error)) http.HandlerFunc {
	return answered(func(r *http.Request) (any, error) {
		number, err := strconv.Atoi(r.PathValue("number"))
		s.Lock()
		if err != nil || number >= len(s.all) {
			s.Unlock()
			return nil, fmt.Errorf("there is no vCenter %s", r.PathValue("number"))
		}
		one := s.all[number]
		s.Unlock()
		return act(one, r)
	})
}

func answered(act func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := act(r)
		// A connection that is closed before all was read is reset.
		io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, strings.TrimSpace(err.Error()), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(answer)
	}
}

package remote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	pb "mcm.invalid/sdk/go/driverv1"
)

const (
	// Two objects and a Secret.
	largestRequest = 8 << 20
	// How long calls may take after the signal to stop.
	grace = 20 * time.Second
)

// mcm pings the connection for calls every 10 s, also without calls. Without this policy the server would close it.
var (
	permitted = keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}
	pings     = keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}
)

// Options say where to listen, and for whom.
type Options struct {
	// unix:///PATH, which only its user can open, or HOST:PORT.
	Listen string
	// Certificate and key of this server, and the CA of its clients. They are read again for each connection.
	CertFile, KeyFile, ClientCAFile string
}

// Main parses the flags --listen, --cert-file, --key-file and --client-ca-file, and serves the driver until SIGTERM.
func Main(provider string, d driver.Driver) {
	var options Options
	flag.StringVar(&options.Listen, "listen", "", "where to listen: unix:///PATH or HOST:PORT")
	flag.StringVar(&options.CertFile, "cert-file", "", "certificate of this server")
	flag.StringVar(&options.KeyFile, "key-file", "", "key of that certificate")
	flag.StringVar(&options.ClientCAFile, "client-ca-file", "", "CA of clients")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := Serve(ctx, provider, d, options); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// Serve serves the driver until the context ends.
func Serve(ctx context.Context, provider string, d driver.Driver, options Options) error {
	listener, transport, err := listen(options)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", options.Listen, err)
	}
	server := grpc.NewServer(append(transport,
		grpc.MaxRecvMsgSize(largestRequest), grpc.KeepaliveEnforcementPolicy(permitted), grpc.KeepaliveParams(pings))...)
	pb.RegisterDriverServer(server, &bridge{provider: provider, driver: d})
	context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, server.Stop)
		server.GracefulStop()
	})
	return server.Serve(listener)
}

func listen(options Options) (net.Listener, []grpc.ServerOption, error) {
	if path, isSocket := strings.CutPrefix(options.Listen, "unix://"); isSocket {
		listener, err := listenUnix(path)
		return listener, nil, err
	}
	host, _, err := net.SplitHostPort(options.Listen)
	if err != nil {
		return nil, nil, errors.New("give unix:///PATH or HOST:PORT")
	}
	var transport []grpc.ServerOption
	if options.CertFile != "" {
		if _, err := options.tls(nil); err != nil {
			return nil, nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, GetConfigForClient: options.tls}
		transport = append(transport, grpc.Creds(credentials.NewTLS(config)))
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		if options.CertFile == "" || options.ClientCAFile == "" {
			return nil, nil, errors.New("others on the network could read credentials: pass --cert-file, --key-file and --client-ca-file")
		}
	}
	listener, err := net.Listen("tcp", options.Listen)
	return listener, transport, err
}

// tls reads the files, for each connection.
func (o Options) tls(*tls.ClientHelloInfo) (*tls.Config, error) {
	certificate, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{certificate}}
	if o.ClientCAFile != "" {
		text, err := os.ReadFile(o.ClientCAFile)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM form", o.ClientCAFile)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

// listenUnix replaces a socket that nobody listens on. The socket has another name until only its user can open it.
func listenUnix(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("a unix address needs an absolute path")
	}
	if found, err := os.Lstat(path); err == nil {
		if found.Mode()&os.ModeSocket == 0 {
			return nil, errors.New("the path exists and is not a socket; remove it")
		}
		if connection, err := net.Dial("unix", path); err == nil {
			_ = connection.Close()
			return nil, errors.New("another process listens there already")
		}
	}
	hidden := fmt.Sprintf("%s.%d.new", path, os.Getpid())
	listener, err := net.Listen("unix", hidden)
	if err != nil {
		return nil, err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(hidden, 0o600), os.Rename(hidden, path)); err != nil {
		return nil, errors.Join(err, listener.Close(), os.Remove(hidden))
	}
	return listener, nil
}

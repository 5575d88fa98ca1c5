// Command control-plane is a whole Kubernetes control plane in one binary: its first argument names the
// component (etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubectl, helm) and the
// rest are that component's own arguments. The tests and the demo start it on loopback.
//
// It may not hold any behaviour of its own: it only dispatches to the components' public entry points.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/embed"
	helm "helm.sh/helm/v4/pkg/cmd"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const usage = "usage: control-plane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubelet|kubectl|helm [arguments]"

func main() {
	name := filepath.Base(os.Args[0])
	if !known(name) {
		if len(os.Args) < 2 || !known(os.Args[1]) {
			fmt.Fprintln(os.Stderr, usage)
			os.Exit(2)
		}
		name = os.Args[1]
		os.Args = append([]string{name}, os.Args[2:]...)
	}
	switch name {
	case "etcd":
		if err := runEtcd(); err != nil {
			fmt.Fprintln(os.Stderr, "etcd:", err)
			os.Exit(1)
		}
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	case "kubelet":
		os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background())))
	case "kubectl":
		if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
			cmdutil.CheckErr(err)
		}
	case "helm":
		root, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
		if err != nil {
			fmt.Fprintln(os.Stderr, "helm:", err)
			os.Exit(1)
		}
		if err := root.Execute(); err != nil {
			os.Exit(1)
		}
	}
}

func known(name string) bool {
	switch name {
	case "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "helm":
		return true
	}
	return false
}

// runEtcd serves one etcd member: etcd DATA_DIR CLIENT_URL PEER_URL, until SIGINT or SIGTERM.
// The data is thrown away with the test, so nothing is synced to disk.
func runEtcd() error {
	if len(os.Args) != 4 {
		return fmt.Errorf("usage: control-plane etcd DATA_DIR CLIENT_URL PEER_URL")
	}
	client, err := url.Parse(os.Args[2])
	if err != nil {
		return err
	}
	peer, err := url.Parse(os.Args[3])
	if err != nil {
		return err
	}
	c := embed.NewConfig()
	c.Dir = os.Args[1]
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.UnsafeNoFsync = true
	c.LogLevel = "error"
	c.QuotaBackendBytes = 4 << 30
	c.WarningUnaryRequestDuration = time.Minute
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer server.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-server.Server.StopNotify():
		return fmt.Errorf("stopped by itself")
	case err := <-server.Err():
		return err
	case <-stop:
		return nil
	}
}

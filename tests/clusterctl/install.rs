//! 9.1: the release as clusterctl installs it.

use crate::world::{LATER, VERSION, World, play};

fn of_mcm() -> String {
    format!("mcm:{VERSION}")
}

/// K1, K2, K3, K4, K5, B5.
#[test]
fn clusterctl_reads_the_release() {
    play(async |world: &World| {
        let listed = world.must(&["config", "repositories"]);
        assert!(
            listed.lines().any(|line| line.starts_with("mcm ") && line.contains("InfrastructureProvider")),
            "{listed}"
        );
        let described = world.must(&["generate", "provider", "--infrastructure", &of_mcm(), "--describe"]);
        for variable in ["CAPMCM_CONCURRENCY", "CAPMCM_LOG_LEVEL", "CAPMCM_INSECURE_DIAGNOSTICS"] {
            assert!(described.contains(variable), "{described}");
        }
        let images = world.must(&["init", "list-images", "-i", &of_mcm()]);
        assert!(images.lines().any(|line| line == format!("localhost/mcm:{VERSION}")), "{images}");
        let elsewhere =
            world.must(&["generate", "provider", "--infrastructure", &of_mcm(), "--target-namespace", "elsewhere"]);
        assert!(!elsewhere.contains("namespace: capmcm-system"), "B2: everything can be elsewhere");
    });
}

/// V1, V2, B1, B3, B4, B8: the objects after `clusterctl init`.
#[test]
fn clusterctl_installs_the_provider() {
    play(async |world: &World| {
        let provider = world.installed();
        assert_eq!((&provider["providerName"], &provider["version"]), (&"mcm".into(), &VERSION.into()));
        let label = "cluster.x-k8s.io/provider=infrastructure-mcm";
        let crds = world.reader.all("", "customresourcedefinitions", label);
        assert_eq!(crds.len(), 11, "seven of ours and four native ones");
        let speaking = crds.iter().filter(|crd| crd["metadata"]["labels"]["cluster.x-k8s.io/v1beta2"] == "v1beta2");
        assert_eq!(speaking.count(), 7);
        assert_eq!(world.reader.all("", "validatingadmissionpolicies", label).len(), 7);
        // kubectl caches the categories of a server.
        let cache = tempfile::tempdir().unwrap();
        let cache = format!("--cache-dir={}", cache.path().display());
        world.kubectl(&["get", "cluster-api", "-A", &cache]);
    });
}

/// K4, 2.3: one instance of a provider; the same again changes nothing.
#[test]
fn clusterctl_refuses_another_version_and_skips_the_same() {
    play(async |world: &World| {
        settled(world).await;
        let again = world.clusterctl(&["init", "--infrastructure", &of_mcm()]);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
        settled(world).await;
        let other = world.clusterctl(&["init", "--infrastructure", &format!("mcm:{LATER}")]);
        let said = String::from_utf8_lossy(&other.stderr);
        assert!(!other.status.success() && said.contains("already an instance"), "{said}");
    });
}

/// T25: the namespace in which clusterctl tries cert-manager terminates for some seconds.
async fn settled(world: &World) {
    let is_gone = async || world.reader.find("", "namespace", "cert-manager-test").is_none().then_some(());
    crate::support::wait::until("clusterctl's test namespace to be gone", is_gone).await;
}

/// R2: exactly the granted rights; the whole lane runs with them.
#[test]
fn the_provider_may_not_do_more_than_it_needs() {
    play(async |world: &World| {
        let account = "--as=system:serviceaccount:capmcm-system:capmcm-manager";
        let can = |verb: &str, kind: &str| {
            let answer = world.try_kubectl(&["auth", "can-i", verb, kind, account, "-n", "default"], "");
            answer.is_ok_and(|answer| answer.trim() == "yes")
        };
        assert!(can("create", "machines.machine.sapcloud.io") && can("get", "secrets"));
        assert!(can("delete", "machines.cluster.x-k8s.io"), "those of pools, P14");
        assert!(can("delete", "mcmmachines.infrastructure.cluster.x-k8s.io"), "those of pools without Machines, P14");
        assert!(can("patch", "machinepools.cluster.x-k8s.io"), "their number, P16");
        let of_manager = ["leases.coordination.k8s.io/machine-controller", "-n", "default", account];
        let listed = world.try_kubectl(&[&["auth", "can-i", "list"], &of_manager[..]].concat(), "");
        assert_eq!(listed.as_deref().map(str::trim), Ok("yes"), "T26");
        for (verb, kind) in [
            ("delete", "mcmmachinepools.infrastructure.cluster.x-k8s.io"),
            ("delete", "machinepools.cluster.x-k8s.io"),
            ("create", "machines.cluster.x-k8s.io"),
            ("update", "clusters.cluster.x-k8s.io"),
            ("create", "secrets"),
            ("delete", "secrets"),
            ("list", "nodes"),
            ("list", "leases.coordination.k8s.io"),
            ("update", "leases.coordination.k8s.io/machine-controller"),
        ] {
            assert!(!can(verb, kind), "{verb} {kind}");
        }
    });
}

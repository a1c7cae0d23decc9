//! The Go programs of some shoots. They hold the Leases of these shoots.

use std::{collections::BTreeMap, fs, path::PathBuf};

use mcm_runtime::leader::is_own_form;

use super::{LIMIT, shoots::SeedShoot};
use crate::{
    miscounts::Miscounts,
    support::{
        fleet::{FleetPlanes, ownership::CLAIMS, pool_of, replica::SERVER},
        identity::{self, Identity},
        wait,
        world::Manager,
    },
};

/// Shoots whose programs start at the same time.
const WAVE: usize = 4;
const FLAGS: [&str; 2] = ["--leader-elect=true", "--machine-safety-overshooting-period=10s"];

/// The Go programs of some shoots.
pub struct GoPrograms {
    /// The folder with the programs.
    folder: PathBuf,
    pairs: BTreeMap<String, GoPair>,
}

/// The two programs of a shoot.
struct GoPair {
    identity: Identity,
    miscounts: Miscounts,
    managers: Vec<Manager>,
}

impl GoPrograms {
    /// The programs in a folder, for some shoots, whose clusters are below a URL.
    pub fn new(
        folder: PathBuf,
        planes: &FleetPlanes,
        shoots: &BTreeMap<String, SeedShoot>,
        namespaces: &[String],
        url: &str,
    ) -> Self {
        let pair = |namespace: &String| {
            let identity = identity_at(&shoots[namespace].identity, format!("{url}/{namespace}"));
            let miscounts = Miscounts::in_namespace(&pool_of(namespace), &planes.world.client, namespace);
            (namespace.clone(), GoPair { identity, miscounts, managers: Vec::new() })
        };
        Self { folder, pairs: namespaces.iter().map(pair).collect() }
    }

    /// Starts the programs of some shoots, and waits until they hold the Leases.
    pub async fn start(&mut self, planes: &FleetPlanes, namespaces: &[String]) {
        for wave in namespaces.chunks(WAVE) {
            for namespace in wave {
                self.launch(planes, namespace);
            }
            until_held(planes, wave, false).await;
        }
    }

    /// The programs of a shoot, which the caller ends.
    pub fn take(&mut self, namespace: &str) -> Vec<Manager> {
        std::mem::take(&mut self.pairs.get_mut(namespace).unwrap().managers)
    }

    /// The number of shoots.
    pub fn count(&self) -> usize {
        self.pairs.len()
    }

    /// Creations and deletions in a shoot so far that no set wanted.
    pub fn miscounted(&self, namespace: &str) -> usize {
        self.pairs.get(namespace).map_or(0, |pair| pair.miscounts.count())
    }

    fn launch(&mut self, planes: &FleetPlanes, namespace: &str) {
        let pair = self.pairs.get_mut(namespace).unwrap();
        let start = |program: &str, flags: &[&str]| {
            let log = format!("{namespace}/go-{program}.log");
            planes.world.launch_in((namespace, &pair.identity), &self.folder.join(program), &[], &log, flags)
        };
        let managers = vec![start("machine-controller-manager", &FLAGS), start("machine-controller", &FLAGS[..1])];
        pair.managers = managers;
    }
}

/// The same accounts with another server for the cluster of the shoot.
fn identity_at(identity: &Identity, server: String) -> Identity {
    let target = identity.target.with_file_name("go-target.kubeconfig");
    fs::copy(&identity.target, &target).unwrap();
    identity::change(&target, SERVER, server.into());
    Identity { control: identity.control.clone(), target }
}

/// Waits until the fleet, or Go programs, hold both Leases of each of these shoots.
pub async fn until_held(planes: &FleetPlanes, namespaces: &[String], is_by_fleet: bool) {
    let who = if is_by_fleet { "the fleet" } else { "Go programs" };
    wait::until_within(LIMIT, &format!("{who} to hold the Leases of {namespaces:?}"), async || {
        let holders = planes.holders().await;
        let is_held = |namespace: &String| {
            let mut of_roles = CLAIMS.iter().map(|role| holders.get(&(namespace.clone(), (*role).to_owned())));
            of_roles.all(|holder| holder.is_some_and(|holder| is_own_form(holder) == is_by_fleet))
        };
        namespaces.iter().all(is_held).then_some(())
    })
    .await;
}

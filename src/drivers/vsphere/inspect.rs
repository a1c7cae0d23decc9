//! The objects that a class needs of vCenter, and whether they are there. All calls are read-only.

use futures::join;
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};

use super::{
    inventory::{CLUSTER, DATASTORE, FOLDER, HOST, Kind, POOL, STORAGE_POD, TEMPLATE},
    place::network_of,
    session::Session,
};

impl Session {
    /// Checks everything that the class needs.
    pub(crate) async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let login = match self.api.soap.managers().await {
            // Everything else would fail for the same reason.
            Err(failure) => return vec![ResourceFinding::of_failure("Secret", &self.api.error(&failure, "a login"))],
            Ok(managers) if managers.fields.is_none() => {
                ResourceFinding::missing("Secret", "the host is an ESXi host without vCenter, which cannot clone VMs")
            }
            Ok(_) => ResourceFinding::present("Secret", format!("{} has logged in", self.login.user)),
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let findings = [login].into_iter().chain(user_data);
        let datacenter = match self.api.datacenter(&self.spec.places.datacenter).await {
            Err(error) => return findings.chain([of_error("datacenter", &error)]).collect(),
            Ok(datacenter) => datacenter,
        };
        let places = &self.spec.places;
        let objects = [
            (FOLDER, Some(&places.folder)),
            (TEMPLATE, Some(&places.template)),
            (DATASTORE, places.datastore.as_ref()),
            (STORAGE_POD, places.storage_pod.as_ref()),
            (CLUSTER, places.cluster.as_ref()),
            (POOL, places.pool.as_ref()),
            (HOST, places.host.as_ref()),
        ];
        let mut found = Vec::new();
        for (kind, text) in objects.into_iter().filter_map(|(kind, text)| Some((kind, text?))) {
            found.push(self.object(&datacenter, kind, text).await);
        }
        let (network, use_of_all) = join!(self.network(&datacenter), self.use_of_all());
        findings.chain(found).chain([network]).chain(use_of_all).collect()
    }

    async fn object(&self, datacenter: &str, kind: Kind, text: &str) -> ResourceFinding {
        match self.api.find(datacenter, kind, text).await {
            Ok(object) => {
                present(kind.field, format!("{} is {}", if text.is_empty() { "vm" } else { text }, object.id))
            }
            Err(error) => of_error(kind.field, &error),
        }
    }

    async fn network(&self, datacenter: &str) -> ResourceFinding {
        match network_of(&self.api, datacenter, &self.spec.places).await {
            Ok(network) => present("network", format!("{} is {}", self.spec.places.network, network.id)),
            Err(error) => of_error("network", &error),
        }
    }

    /// Checks that a VM could be made of all objects: the disk fits, and the customization is there.
    async fn use_of_all(&self) -> Option<ResourceFinding> {
        let error = self.target().await.err()?;
        // Absent objects are reported by their fields.
        let is_of_field = error.message.starts_with("there is no") && !error.message.contains("customization");
        (!is_of_field).then(|| of_error("templateVM", &error))
    }
}

fn present(field: &str, text: String) -> ResourceFinding {
    ResourceFinding::present(format!("providerSpec.{field}"), text)
}

/// The finding of a failed look-up. An object that is absent, or cannot be used, is an invalid argument.
fn of_error(field: &str, error: &DriverError) -> ResourceFinding {
    let path = format!("providerSpec.{field}");
    if error.code == Code::InvalidArgument {
        ResourceFinding::missing(path, error.message.clone())
    } else {
        ResourceFinding::of_failure(path, error)
    }
}

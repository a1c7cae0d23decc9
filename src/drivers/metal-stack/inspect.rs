//! The resources that a class needs of metal-stack, and whether they are there. All calls are read-only.

use futures::join;
use serde::Deserialize;

use super::session::Session;
use mcm_driver::{DriverError, code::Code, inspection::ResourceFinding};

/// The feature of an image that machines can have; others are for firewalls.
const MACHINE_IMAGE: &str = "machine";

/// A resource, or `None` if it is certainly absent.
type Found<T> = Result<Option<T>, DriverError>;

#[derive(Deserialize)]
struct User {
    #[serde(rename = "EMail")]
    email: String,
}

#[derive(Deserialize)]
struct Image {
    id: String,
    features: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Project {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Network {
    partitionid: Option<String>,
    prefixes: Option<Vec<String>>,
}

/// A resource of which only the existence counts.
#[derive(Deserialize)]
struct Anything {
    id: String,
}

impl Session {
    /// Checks everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let user: Found<User> = self.api.get(&["v1", "user", "me"]).await;
        let login = match user {
            // Everything else would fail for the same reason.
            Err(error) if error.code == Code::Unauthenticated => {
                return vec![ResourceFinding::of_failure("Secret", &error)];
            }
            Err(error) => ResourceFinding::of_failure("Secret", &error),
            Ok(None) => ResourceFinding::missing("Secret", format!("there is no metal-api at {}", self.login.url)),
            Ok(Some(user)) => {
                ResourceFinding::present("Secret", format!("the credentials are those of {}", user.email))
            }
        };
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (partition, size, image, project, network, stock) =
            join!(self.partition(), self.size(), self.image(), self.project(), self.network(), self.stock());
        let findings = [login].into_iter().chain(user_data).chain([partition, size, image, project, network]);
        findings.chain(stock).collect()
    }

    async fn partition(&self) -> ResourceFinding {
        let name = &self.spec.partition;
        let found: Found<Anything> = self.api.get(&["v1", "partition", name]).await;
        judged("partition", found, name, |one| Ok(format!("partition {} exists", one.id)))
    }

    async fn size(&self) -> ResourceFinding {
        let name = &self.spec.size;
        let found: Found<Anything> = self.api.get(&["v1", "size", name]).await;
        judged("size", found, name, |one| Ok(format!("size {} exists", one.id)))
    }

    /// An image without a version is the latest one, as for an allocation.
    async fn image(&self) -> ResourceFinding {
        let name = &self.spec.image;
        let found: Found<Image> = self.api.get(&["v1", "image", name, "latest"]).await;
        judged("image", found, name, |image| {
            let features = image.features.unwrap_or_default();
            if features.is_empty() || features.iter().any(|feature| feature == MACHINE_IMAGE) {
                Ok(image.id)
            } else {
                Err(format!("image {} is for {} only", image.id, features.join(", ")))
            }
        })
    }

    async fn project(&self) -> ResourceFinding {
        let id = &self.spec.project;
        let found: Found<Project> = self.api.get(&["v1", "project", id]).await;
        judged("project", found, id, |project| Ok(format!("project {} exists", project.name.as_ref().unwrap_or(id))))
    }

    async fn network(&self) -> ResourceFinding {
        let (name, partition) = (&self.spec.network, &self.spec.partition);
        let found: Found<Network> = self.api.get(&["v1", "network", name]).await;
        judged("network", found, name, |network| {
            match network.partitionid.filter(|other| !other.is_empty() && other != partition) {
                Some(other) => Err(format!("network {name} is in partition {other}")),
                None => Ok(network.prefixes.unwrap_or_default().join(", ")),
            }
        })
    }

    /// Checks that a machine of the size is free. It may be taken before the class is used.
    async fn stock(&self) -> Option<ResourceFinding> {
        const PATH: &str = "providerSpec.size";
        let (partition, size) = (&self.spec.partition, &self.spec.size);
        match self.api.free_machines(partition, size, &self.spec.project).await {
            // Machines of this size are not known there, or the API is older.
            Ok(None) => None,
            Ok(Some(0)) => {
                Some(ResourceFinding::missing(PATH, format!("no machine of size {size} is free in {partition}")))
            }
            Ok(Some(free)) => {
                Some(ResourceFinding::present(PATH, format!("{free} machines of size {size} are free in {partition}")))
            }
            Err(error) => Some(ResourceFinding::of_failure(PATH, &error)),
        }
    }
}

fn judged<T>(
    field: &str,
    found: Found<T>,
    name: &str,
    judge: impl FnOnce(T) -> Result<String, String>,
) -> ResourceFinding {
    ResourceFinding::judged(format!("providerSpec.{field}"), found, format!("there is no {field} {name}"), judge)
}

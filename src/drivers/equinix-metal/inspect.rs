//! The resources that a class needs of Equinix Metal, and whether they are there. All calls are read-only.

use futures::{future::join_all, join};
use mcm_driver::{Code, DriverError, inspection::ResourceFinding};
use serde::Deserialize;

use crate::session::Session;

/// A resource, or `None` if it is certainly absent.
type Found<T> = Result<Option<T>, DriverError>;

#[derive(Deserialize)]
struct Project {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Metros {
    metros: Vec<Metro>,
}

#[derive(Deserialize)]
struct Metro {
    code: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Plans {
    plans: Vec<Plan>,
}

#[derive(Deserialize)]
struct Plan {
    slug: Option<String>,
}

#[derive(Deserialize)]
struct OperatingSystems {
    operating_systems: Vec<OperatingSystem>,
}

#[derive(Deserialize)]
struct OperatingSystem {
    slug: Option<String>,
    name: Option<String>,
    provisionable_on: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct SshKey {
    label: Option<String>,
}

#[derive(Deserialize)]
struct Reservation {
    provisionable: Option<bool>,
}

impl Session {
    /// Looks for everything that the class needs.
    pub async fn inspect(&self, user_data: Option<DriverError>) -> Vec<ResourceFinding> {
        let id = &self.spec.project;
        let project: Found<Project> = self.api.get(&["projects", id]).await;
        // Everything else would fail for the same reason.
        if let Err(error) = &project
            && error.code == Code::Unauthenticated
        {
            return vec![ResourceFinding::of_failure("Secret", error)];
        }
        let project = judged("projectID", project, &format!("project {id}"), |project| {
            Ok(format!("project {} exists", project.name.as_ref().unwrap_or(id)))
        });
        let user_data = user_data.map(|error| ResourceFinding::of_failure("Secret", &error));
        let (metro, plan, system, stock, keys, reservations) = join!(
            self.metro(),
            self.plan(),
            self.operating_system(),
            self.stock(),
            join_all(self.spec.ssh_keys.iter().enumerate().map(|(index, id)| self.ssh_key(index, id))),
            join_all(self.spec.reservations.iter().enumerate().map(|(index, id)| self.reservation(index, id))),
        );
        let findings = user_data.into_iter().chain([project, metro, plan, system]).chain(stock);
        findings.chain(keys).chain(reservations.into_iter().flatten()).collect()
    }

    async fn metro(&self) -> ResourceFinding {
        let code = &self.spec.metro;
        let all: Found<Metros> = self.api.get(&["locations", "metros"]).await;
        let found = all.map(|all| all?.metros.into_iter().find(|metro| metro.code.eq_ignore_ascii_case(code)));
        judged("metro", found, &format!("metro {code}"), |metro| Ok(metro.name.unwrap_or(metro.code)))
    }

    async fn plan(&self) -> ResourceFinding {
        let plan = &self.spec.machine_type;
        let all: Found<Plans> = self.api.get(&["projects", &self.spec.project, "plans"]).await;
        let found = all.map(|all| all?.plans.into_iter().find(|one| one.slug.as_ref() == Some(plan)));
        judged("machineType", found, &format!("plan {plan}"), |_| Ok(format!("plan {plan} exists")))
    }

    async fn operating_system(&self) -> ResourceFinding {
        let (slug, plan) = (&self.spec.operating_system, &self.spec.machine_type);
        let all: Found<OperatingSystems> = self.api.get(&["operating-systems"]).await;
        let found = all.map(|all| all?.operating_systems.into_iter().find(|one| one.slug.as_ref() == Some(slug)));
        judged("OS", found, &format!("operating system {slug}"), |system| {
            let plans = system.provisionable_on.unwrap_or_default();
            if plans.is_empty() || plans.contains(plan) {
                Ok(system.name.unwrap_or_else(|| slug.clone()))
            } else {
                Err(format!("operating system {slug} does not run on plan {plan}"))
            }
        })
    }

    /// Checks that a server of the plan is free. It may be taken before the class is used.
    async fn stock(&self) -> Option<ResourceFinding> {
        const PATH: &str = "providerSpec.machineType";
        let (metro, plan) = (&self.spec.metro, &self.spec.machine_type);
        match self.api.has_capacity(metro, plan).await {
            Ok(None) => None,
            Ok(Some(true)) => {
                Some(ResourceFinding::present(PATH, format!("a server of plan {plan} is free in {metro}")))
            }
            Ok(Some(false)) => {
                Some(ResourceFinding::missing(PATH, format!("no server of plan {plan} is free in {metro}")))
            }
            Err(error) => Some(ResourceFinding::of_failure(PATH, &error)),
        }
    }

    async fn ssh_key(&self, index: usize, id: &str) -> ResourceFinding {
        let found: Found<SshKey> = self.api.get(&["ssh-keys", id]).await;
        judged(&format!("sshKeys[{index}]"), found, &format!("SSH key {id}"), |key| {
            Ok(format!("key {}", key.label.as_deref().unwrap_or(id)))
        })
    }

    /// `None` for the text that means any reservation.
    async fn reservation(&self, index: usize, id: &str) -> Option<ResourceFinding> {
        if id == "next-available" {
            return None;
        }
        let found: Found<Reservation> = self.api.get(&["hardware-reservations", id]).await;
        let field = format!("reservationIDs[{index}]");
        Some(judged(&field, found, &format!("hardware reservation {id}"), |reservation| {
            if reservation.provisionable == Some(false) {
                Err(format!("hardware reservation {id} is in use"))
            } else {
                Ok(format!("hardware reservation {id} exists"))
            }
        }))
    }
}

fn judged<T>(
    field: &str,
    found: Found<T>,
    name: &str,
    judge: impl FnOnce(T) -> Result<String, String>,
) -> ResourceFinding {
    ResourceFinding::judged(format!("providerSpec.{field}"), found, format!("there is no {name}"), judge)
}

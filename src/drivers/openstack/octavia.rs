//! Pools, members and load balancers as Octavia shows them.

use std::{net::IpAddr, time::Duration};

use mcm_driver::{Code, DriverError};
use serde::Deserialize;
use tokio::time::Instant;

use super::{parts::time_in, server::since};

pub(crate) const ACTIVE: &str = "ACTIVE";
pub(crate) const FAILED: &str = "ERROR";
pub(crate) const BEING_DELETED: &str = "PENDING_DELETE";

/// How far Octavia has carried out the last change of a pool or a load balancer.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Progress {
    provisioning_status: String,
    created_at: Option<String>,
    updated_at: Option<String>,
}

/// A pool as Octavia shows it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct ShownPool {
    #[serde(flatten)]
    pub progress: Progress,
    /// Those that send to it: one, in all versions so far.
    #[serde(default)]
    pub loadbalancers: Vec<Identified>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Identified {
    pub id: String,
}

/// A member of a pool. One that others added may lack anything but its ID.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Member {
    pub id: String,
    pub name: Option<String>,
    address: Option<String>,
    pub protocol_port: Option<u16>,
    pub subnet_id: Option<String>,
    #[serde(flatten)]
    pub progress: Progress,
}

impl Progress {
    pub fn is(&self, status: &str) -> bool {
        self.provisioning_status == status
    }

    /// When the last change began, as far as the clocks of this host and of Octavia agree.
    fn since(&self) -> Instant {
        let text = self.updated_at.as_deref().or(self.created_at.as_deref());
        text.and_then(time_in).map_or_else(Instant::now, since)
    }

    /// `what` is the part of Octavia that makes this progress, which takes `longest` at most.
    ///
    /// # Errors
    /// [`Code::FailedPrecondition`]: it failed. [`Code::DeadlineExceeded`]: it takes too long.
    pub fn check(&self, what: &str, load_balancer: &str, longest: Duration) -> Result<(), DriverError> {
        let status = &self.provisioning_status;
        let advice =
            format!("look at the load balancer, and fail it over (openstack loadbalancer failover {load_balancer})");
        if self.is(FAILED) {
            let text = format!("{what} has provisioning_status {status}: {advice}");
            return Err(DriverError::new(Code::FailedPrecondition, text));
        }
        let age = self.since().elapsed();
        if !self.is(ACTIVE) && age > longest {
            let text = format!("{what} has provisioning_status {status} since {} s: {advice}", age.as_secs());
            return Err(DriverError::new(Code::DeadlineExceeded, text));
        }
        Ok(())
    }
}

impl ShownPool {
    pub fn load_balancer(&self) -> &str {
        self.loadbalancers.first().map_or("ID", |one| one.id.as_str())
    }
}

impl Member {
    pub fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }

    pub fn has(&self, address: IpAddr) -> bool {
        self.address.as_deref().and_then(|text| text.parse().ok()) == Some(address)
    }
}

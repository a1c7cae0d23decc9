//! Load balancers: names with members. They are kept in memory, and route no requests.

use std::collections::BTreeSet;

use super::CloudSimulator;
use crate::messages::{CloudCallError, LoadBalancerView};
use mcm_driver::{code::Code, operation::DriverOperation};

/// Most load balancers of a cloud.
const MOST: usize = 10_000;

impl CloudSimulator {
    /// Makes a load balancer without members, or returns that with this name.
    ///
    /// # Errors
    /// `ResourceExhausted` if there are too many.
    pub fn put_load_balancer(&self, name: &str) -> Result<LoadBalancerView, CloudCallError> {
        let (mut inner, _) = self.lock();
        if inner.load_balancers.len() >= MOST && !inner.load_balancers.contains_key(name) {
            return Err(CloudCallError::new(
                Code::ResourceExhausted,
                format!("there are {MOST} load balancers: delete some"),
            ));
        }
        Ok(view(name, inner.load_balancers.entry(name.to_owned()).or_default()))
    }

    /// A load balancer with its members.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn load_balancer(&self, name: &str) -> Result<LoadBalancerView, CloudCallError> {
        let (inner, _) = self.lock();
        inner.load_balancers.get(name).map(|members| view(name, members)).ok_or_else(|| none(name))
    }

    /// Deletes a load balancer, and none of its members.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn delete_load_balancer(&self, name: &str) -> Result<(), CloudCallError> {
        let (mut inner, _) = self.lock();
        inner.load_balancers.remove(name).map(drop).ok_or_else(|| none(name))
    }

    /// Makes a VM a member of a load balancer, or ends its membership. A VM that is deleted remains a member, so that a test
    /// finds one that was not deregistered.
    ///
    /// # Errors
    /// `NotFound` if there is no such load balancer, `FailedPrecondition` if there is no such VM to register, and injected
    /// faults.
    pub async fn set_member(&self, balancer: &str, id: &str, is_member: bool) -> Result<(), CloudCallError> {
        let machine = self.lock().0.vms.get(id).map(|vm| vm.machine_name.clone()).unwrap_or_default();
        let operation = if is_member { DriverOperation::Register } else { DriverOperation::Deregister };
        self.call(operation, &machine, async {
            let (mut guard, _) = self.lock();
            let inner = &mut *guard;
            let members = inner.load_balancers.get_mut(balancer).ok_or_else(|| none(balancer))?;
            if !is_member {
                members.remove(id);
            } else if inner.vms.get(id).is_some() {
                members.insert(id.to_owned());
            } else {
                return Err(CloudCallError::new(Code::FailedPrecondition, format!("there is no VM {id} to register")));
            }
            Ok(())
        })
        .await
    }
}

fn view(name: &str, members: &BTreeSet<String>) -> LoadBalancerView {
    LoadBalancerView { name: name.to_owned(), members: members.iter().cloned().collect() }
}

fn none(name: &str) -> CloudCallError {
    CloudCallError::new(Code::NotFound, format!("there is no load balancer {name:?}"))
}

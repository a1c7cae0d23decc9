//! Operations from outside of the cloud: settings, faults, inspection.

use serde_json::Value;

use super::{CloudSimulator, no_vm, unwritten};
use crate::{
    control::{InvalidControl, SimulationSettings},
    messages::{
        CloudCallError, ConditionRequest, KillMode, KillRequest, StateView, TagRequest, VmView, VolumesRequest,
    },
    record::{DepartedVm, DepartureCause, SetCondition},
    stats::SimulationStats,
};
use mcm_driver::code::Code;

impl CloudSimulator {
    /// Kills a VM, as a hardware failure or an operator at the console would.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn kill(&self, id: &str, request: KillRequest) -> Result<VmView, CloudCallError> {
        let how = match request.mode {
            KillMode::Stop => {
                return self.change(id, |vm, now| {
                    vm.stopped_at.get_or_insert(now);
                    Ok(())
                });
            }
            KillMode::Vanish => DepartureCause::Vanished,
            KillMode::Unregister => DepartureCause::Unregistered,
        };
        let (mut inner, now) = self.lock();
        let view = inner.vms.get(id).ok_or_else(|| no_vm(id))?.view(now);
        inner.vms.remove(id, now, how).map_err(|error| unwritten(&error))?;
        inner.stats.killed += 1;
        let alive = inner.vms.len();
        inner.stats.now_alive(alive);
        self.announce(&mut inner, id);
        Ok(view)
    }

    /// Makes a VM one of a cluster and an owner; of none if they are empty.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_tags(&self, id: &str, tags: &TagRequest) -> Result<VmView, CloudCallError> {
        self.change(id, |vm, _| {
            tags.cluster.clone_into(&mut vm.cluster);
            tags.owner.clone_into(&mut vm.owner);
            Ok(())
        })
    }

    /// Sets a condition of a VM's Node, or takes it back.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`.
    pub fn set_condition(&self, id: &str, request: ConditionRequest) -> Result<VmView, CloudCallError> {
        let refuse = |message: &str| Err(CloudCallError::new(Code::InvalidArgument, message));
        if request.type_.is_empty() {
            return refuse("a condition needs a type");
        }
        if !matches!(request.status.as_deref(), None | Some("True" | "False" | "Unknown")) {
            return refuse("the status of a condition is True, False, Unknown, or null to reset the condition");
        }
        self.change(id, |vm, now| {
            let old = vm.conditions.remove(&request.type_);
            let since = old.filter(|old| old.status == request.status).map_or(now, |old| old.since);
            let ConditionRequest { type_, status, reason, message } = request;
            vm.conditions.insert(type_, SetCondition { status, reason, message, since });
            Ok(())
        })
    }

    /// Attaches and detaches volumes.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn set_volumes(&self, id: &str, request: &VolumesRequest) -> Result<VmView, CloudCallError> {
        self.change(id, |vm, _| {
            vm.volumes.retain(|volume| !request.detach.contains(volume) && !request.attach.contains(volume));
            vm.volumes.extend(request.attach.iter().cloned());
            Ok(())
        })
    }

    /// The settings in force.
    pub fn control(&self) -> SimulationSettings {
        self.lock().0.control.clone()
    }

    /// Replaces all settings; absent fields get the initial value.
    ///
    /// # Errors
    /// When they are not valid.
    pub fn replace_control(&self, body: Value) -> Result<SimulationSettings, InvalidControl> {
        SimulationSettings::replaced(&self.start, body).map(|control| self.set_control(control))
    }

    /// Changes some settings; `null` restores the initial value.
    ///
    /// # Errors
    /// When the outcome is not valid.
    pub fn patch_control(&self, patch: Value) -> Result<SimulationSettings, InvalidControl> {
        self.control().patched(&self.start, patch).map(|control| self.set_control(control))
    }

    /// Replaces all settings.
    pub fn set_control(&self, control: SimulationSettings) -> SimulationSettings {
        let (mut guard, _) = self.lock();
        let inner = &mut *guard;
        if inner.control.faults != control.faults {
            inner.faults.reset();
        }
        if inner.control.throttle != control.throttle {
            inner.faults.refill();
        }
        if inner.control.nodes != control.nodes || inner.control.never_join != control.never_join {
            inner.changed = inner.changed.take().map(|_| inner.everything());
            self.changed.notify_one();
        }
        inner.control = control.clone();
        control
    }

    /// Everything there is.
    pub fn state(&self) -> StateView {
        let (inner, now) = self.lock();
        StateView {
            vms: inner.vms.vms().map(|vm| vm.view(now)).collect(),
            departed: inner.vms.departed().values().map(DepartedVm::view).collect(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> SimulationStats {
        self.lock().0.stats.clone()
    }
}

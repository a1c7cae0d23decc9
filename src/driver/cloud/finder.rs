//! The VM of a Machine: rules against two VMs for one Machine, and against one VM for two Machines.

use super::wanted::MachineIdentity;
use crate::{Code, DriverError, ListedVm, Vm};

/// The owner of a VM, by its markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VmOwnership {
    /// It has the markers of the class.
    Ours,
    /// It has the marker of another cluster.
    Foreign,
    /// It has no marker of any cluster.
    Unmarked,
}

/// A VM as its cloud shows it.
pub trait CloudVm {
    /// The markers of a class.
    type Scope: ?Sized;

    /// The cloud gives the ID of a VM to later VMs, as clouds of physical servers do. Then an ID alone does not prove that
    /// a VM is that of a Machine.
    const REUSES_IDS: bool;

    /// The cloud's own ID.
    fn id(&self) -> &str;

    /// Name of the Machine that it was created for.
    fn machine_name(&self) -> &str;

    /// UID of that Machine. VMs of the reference have none.
    fn machine_uid(&self) -> Option<&str>;

    /// The owner of the VM, by its tags or labels.
    fn belonging(&self, scope: &Self::Scope) -> VmOwnership;

    /// The marker of its owner. VMs of the reference have none.
    fn owner(&self) -> Option<&str>;

    /// The VM as a list shows it.
    fn listed(&self) -> ListedVm {
        ListedVm::new(self.machine_name(), self.owner().map(str::to_owned))
    }

    /// Lists and look-ups by name show it. A copy that another program made, and a VM that another infrastructure
    /// provider has taken over, are known by their ID alone.
    fn is_listed(&self, _: &Self::Scope) -> bool {
        true
    }

    /// The cloud shows it although its deletion is under way. It is there to be waited for, and is no VM otherwise.
    fn is_leaving(&self) -> bool {
        false
    }
}

/// The VMs that were created for a Machine: those of the class with its name that are not marked as of another UID.
pub fn created_for<V: CloudVm>(
    all: impl IntoIterator<Item = V>,
    wanted: MachineIdentity<'_>,
    scope: &V::Scope,
) -> Vec<V> {
    let is_ours = |vm: &V| vm.belonging(scope) == VmOwnership::Ours && wanted.is(vm.machine_name(), vm.machine_uid());
    all.into_iter().filter(is_ours).collect()
}

/// The VM with the provider ID of a Machine, unless it is of another cluster or, where IDs are reused, of another Machine. The
/// UID may differ: a Machine that was restored has a new one.
pub fn known_as<V: CloudVm>(found: Option<V>, wanted: MachineIdentity<'_>, scope: &V::Scope) -> Option<V> {
    let vm = found?;
    let has_uid = !wanted.uid.is_empty() && vm.machine_uid() == Some(wanted.uid);
    let is_ours = match vm.belonging(scope) {
        VmOwnership::Ours => !V::REUSES_IDS || has_uid || vm.machine_name() == wanted.name,
        VmOwnership::Unmarked => !V::REUSES_IDS || has_uid,
        VmOwnership::Foreign => false,
    };
    if is_ours {
        return Some(vm);
    }
    tracing::warn!(vm = vm.id(), machine = wanted.name, "VM is of another machine or cluster, left alone");
    None
}

/// The reason why a look-up shows no VM of a Machine.
#[derive(Clone, Debug, PartialEq)]
pub enum VmLookupError {
    /// The VM certainly does not exist.
    Absent(VmAbsence),
    /// There may be one.
    Failed(DriverError),
}

/// There certainly is no VM of a Machine. Only [`only`] makes it, of the VMs that a look-up found: whatever else a cloud does not
/// find, such as a list, an image or a project, is no absence of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct VmAbsence {
    message: String,
    ended: Option<Box<Vm>>,
}

impl VmLookupError {
    /// The same, with the reason of an absence.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        if let Self::Absent(absence) = &mut self {
            absence.message = format!("{}: {reason}", absence.message);
        }
        self
    }

    /// The same, with the VM as it ended, which the cloud still shows.
    #[must_use]
    pub fn with_end(mut self, vm: Option<Vm>) -> Self {
        if let Self::Absent(absence) = &mut self {
            absence.ended = vm.map(Box::new);
        }
        self
    }
}

impl From<DriverError> for VmLookupError {
    fn from(error: DriverError) -> Self {
        Self::Failed(error)
    }
}

impl From<VmLookupError> for DriverError {
    fn from(error: VmLookupError) -> Self {
        match error {
            VmLookupError::Absent(VmAbsence { message, ended }) => {
                Self { vm: ended, ..Self::new(Code::NotFound, message) }
            }
            VmLookupError::Failed(error) => error_of_existing(error),
        }
    }
}

/// The error of a call about a VM that may exist. What the error does not find is something else.
pub(super) fn error_of_existing(error: DriverError) -> DriverError {
    let code = if error.code == Code::NotFound { Code::Unknown } else { error.code };
    DriverError { code, ..error }
}

/// The only VM of several that were found.
///
/// # Errors
/// [`VmLookupError::Absent`] if no VM was found, [`Code::OutOfRange`] if there are several.
pub fn only<V: CloudVm>(mut found: Vec<V>, machine: &str) -> Result<V, VmLookupError> {
    match (found.pop(), found.len()) {
        (None, _) => {
            let message = format!("machine {machine:?} has no VM");
            Err(VmLookupError::Absent(VmAbsence { message, ended: None }))
        }
        (Some(only), 0) => Ok(only),
        (Some(last), _) => {
            found.push(last);
            let mut ids: Vec<&str> = found.iter().map(CloudVm::id).collect();
            ids.sort_unstable();
            ids.dedup();
            let ids = ids.join(", ");
            Err(DriverError::new(Code::OutOfRange, format!("machine {machine:?} has several VMs: {ids}")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    /// A VM of a cloud that reuses IDs, or of one that does not.
    #[derive(Clone, Debug, PartialEq)]
    struct FakeVm<const REUSES_IDS: bool> {
        id: String,
        name: &'static str,
        uid: Option<&'static str>,
        cluster: Option<&'static str>,
    }

    impl<const REUSES_IDS: bool> CloudVm for FakeVm<REUSES_IDS> {
        type Scope = str;

        const REUSES_IDS: bool = REUSES_IDS;

        fn id(&self) -> &str {
            &self.id
        }

        fn machine_name(&self) -> &str {
            self.name
        }

        fn machine_uid(&self) -> Option<&str> {
            self.uid
        }

        fn belonging(&self, scope: &str) -> VmOwnership {
            match self.cluster {
                None => VmOwnership::Unmarked,
                Some(cluster) if cluster == scope => VmOwnership::Ours,
                Some(_) => VmOwnership::Foreign,
            }
        }

        fn owner(&self) -> Option<&str> {
            None
        }
    }

    const WANTED: MachineIdentity<'static> = MachineIdentity { name: "m", uid: "u" };

    #[rstest]
    #[case::ours("m", Some("u"), Some("ours"), true, true)]
    #[case::of_the_reference("m", None, Some("ours"), true, true)]
    #[case::restored_with_a_new_uid("m", Some("v"), Some("ours"), true, true)]
    #[case::of_another_name("n", Some("v"), Some("ours"), true, false)]
    #[case::renamed("n", Some("u"), Some("ours"), true, true)]
    #[case::without_markers("m", Some("u"), None, true, true)]
    #[case::without_markers_and_uid("m", None, None, true, false)]
    #[case::of_another_cluster("m", Some("u"), Some("other"), false, false)]
    fn a_vm_is_known_by_its_id_as_far_as_ids_are_unique(
        #[case] name: &'static str,
        #[case] uid: Option<&'static str>,
        #[case] cluster: Option<&'static str>,
        #[case] by_unique_id: bool,
        #[case] by_reused_id: bool,
    ) {
        let unique = FakeVm::<false> { id: "1".to_owned(), name, uid, cluster };
        let reused = FakeVm::<true> { id: "1".to_owned(), name, uid, cluster };
        assert_eq!(known_as(Some(unique), WANTED, "ours").is_some(), by_unique_id);
        assert_eq!(known_as(Some(reused), WANTED, "ours").is_some(), by_reused_id);
        assert_eq!(known_as(None::<FakeVm<true>>, WANTED, "ours"), None);
    }

    #[test]
    fn one_vm_is_the_only_one() {
        let vm = |id: &str| FakeVm::<true> { id: id.to_owned(), name: "m", uid: None, cluster: None };
        assert_eq!(only(vec![vm("1")], "m").unwrap().id, "1");
        let error = |found| DriverError::from(only::<FakeVm<true>>(found, "m").map(drop).unwrap_err());
        assert_eq!(error(vec![]).code, Code::NotFound);
        let several = error(vec![vm("2"), vm("1")]);
        assert_eq!(
            (several.code, several.message.as_str()),
            (Code::OutOfRange, r#"machine "m" has several VMs: 1, 2"#)
        );
    }

    #[test]
    fn only_a_look_up_without_a_vm_is_an_absence() {
        let absent = || only::<FakeVm<true>>(vec![], "m").map(drop).unwrap_err().because("it was starved");
        let vm = Vm { halted: Some("stopped".to_owned()), ..Vm::default() };
        let error = DriverError::from(absent().with_end(Some(vm.clone())));
        assert_eq!((error.code, error.message.as_str()), (Code::NotFound, r#"machine "m" has no VM: it was starved"#));
        assert_eq!(error.vm.as_deref(), Some(&vm));
        for (code, expected) in Code::ALL.map(|code| match code {
            Code::NotFound => (code, Code::Unknown),
            code => (code, code),
        }) {
            let other = VmLookupError::from(DriverError::new(code, "a list")).because("x").with_end(Some(vm.clone()));
            assert_eq!(DriverError::from(other), DriverError::new(expected, "a list"));
        }
    }

    fn vms() -> impl Strategy<Value = Vec<FakeVm<true>>> {
        let uid = proptest::sample::select(vec![None, Some(""), Some("u"), Some("v")]);
        let cluster = proptest::sample::select(vec![None, Some("ours"), Some("other")]);
        let vm = (proptest::sample::select(vec!["m", "n"]), uid, cluster);
        proptest::collection::vec(vm, 0..8).prop_map(|all| {
            let vm = |(id, (name, uid, cluster)): (usize, _)| FakeVm { id: id.to_string(), name, uid, cluster };
            all.into_iter().enumerate().map(vm).collect()
        })
    }

    proptest! {
        #[test]
        fn no_vm_of_another_machine_or_cluster_is_taken(all in vms(), is_orphan in any::<bool>()) {
            let wanted = if is_orphan { MachineIdentity { uid: "", ..WANTED } } else { WANTED };
            let found = created_for(all.clone(), wanted, "ours");
            for vm in &found {
                prop_assert_eq!((vm.name, vm.cluster), ("m", Some("ours")));
                prop_assert!(is_orphan || vm.uid != Some("v"));
            }
            // A VM of the Machine is never overlooked: the next one would be its second.
            let is_its_own = |vm: &&FakeVm<true>| (vm.name, vm.uid, vm.cluster) == ("m", Some("u"), Some("ours"));
            for vm in all.iter().filter(is_its_own) {
                prop_assert!(found.contains(vm));
            }
            for vm in all {
                let known = known_as(Some(vm.clone()), wanted, "ours");
                prop_assert!(vm.cluster != Some("other") || known.is_none());
                prop_assert!(known.is_none() || vm.name == "m" || vm.uid == Some(wanted.uid));
                prop_assert!(!found.contains(&vm) || known.is_some(), "a VM that is found by name is found by its ID");
            }
            let count = found.len();
            match only(found, "m") {
                Ok(_) => prop_assert_eq!(count, 1),
                Err(VmLookupError::Absent(_)) => prop_assert_eq!(count, 0),
                Err(VmLookupError::Failed(error)) => prop_assert_eq!(error.code, Code::OutOfRange),
            }
        }
    }
}

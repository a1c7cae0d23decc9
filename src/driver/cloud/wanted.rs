//! The Machine for which a VM is looked up.

use mcm_api::machine::Machine;

/// The name and UID of a Machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineIdentity<'a> {
    /// Name of the Machine.
    pub name: &'a str,
    /// Empty for an orphan, which is known by its VM only.
    pub uid: &'a str,
}

impl<'a> MachineIdentity<'a> {
    /// The name and UID in the metadata of a Machine.
    pub fn from_machine(machine: &'a Machine) -> Self {
        let metadata = &machine.metadata;
        Self { name: metadata.name.as_deref().unwrap_or_default(), uid: metadata.uid.as_deref().unwrap_or_default() }
    }

    /// A VM with this name and this mark was created for the Machine. The reference marks no UIDs, so a VM without
    /// one is matched by its name.
    pub fn is(&self, name: &str, uid: Option<&str>) -> bool {
        name == self.name
            && (self.uid.is_empty() || uid.filter(|uid| !uid.is_empty()).is_none_or(|uid| uid == self.uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::marked("m", Some("u"), true)]
    #[case::of_the_reference("m", None, true)]
    #[case("m", Some(""), true)]
    #[case::of_an_earlier_machine("m", Some("v"), false)]
    #[case("n", Some("u"), false)]
    fn a_vm_is_that_of_a_machine_by_name_and_uid(
        #[case] name: &str,
        #[case] uid: Option<&str>,
        #[case] expected: bool,
    ) {
        assert_eq!(MachineIdentity { name: "m", uid: "u" }.is(name, uid), expected);
        assert_eq!(MachineIdentity { name: "m", uid: "" }.is(name, uid), name == "m", "an orphan has no UID");
    }
}

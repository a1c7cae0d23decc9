//! Provider IDs: the cloud's own name of a VM, and the form in which Machines and Nodes hold it.

use super::fields::is_word;
use crate::{code::Code, error::DriverError};
use mcm_api::machine::Machine;

/// The provider IDs of one cloud: `<prefix><place>/<native>`.
#[derive(Clone, Copy, Debug)]
pub struct ProviderIds {
    /// Name of the provider.
    pub provider: &'static str,
    /// Scheme and slashes, such as `aws:///`.
    pub prefix: &'static str,
}

impl ProviderIds {
    /// The form in which Machines and Nodes hold the ID.
    pub fn node_form(&self, place: &str, native: &str) -> String {
        format!("{}{place}/{native}", self.prefix)
    }

    /// The last `N` parts, of which the last is the native ID. `None` if it is no ID of this cloud. Like the reference it
    /// ignores what is between the scheme and them.
    pub fn parts<'a, const N: usize>(&self, id: &'a str) -> Option<[&'a str; N]> {
        let mut parts = id.strip_prefix(self.prefix.trim_end_matches('/'))?.rsplit('/');
        let mut found = [""; N];
        for part in found.iter_mut().rev() {
            *part = parts.next()?;
        }
        found.iter().all(|part| !part.is_empty()).then_some(found)
    }

    /// The parts of the ID of a Machine, if it has one.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is one of another cloud.
    pub fn of_machine<'a, const N: usize>(&self, machine: &'a Machine) -> Result<Option<[&'a str; N]>, DriverError> {
        let id = machine.spec.provider_id.as_str();
        if id.is_empty() {
            return Ok(None);
        }
        self.parts(id).map(Some).ok_or_else(|| {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let provider = self.provider;
            let message = format!(
                "machine {name:?} has provider ID {id:?}, which is not an ID of provider {provider}: check its class"
            );
            DriverError::new(Code::InvalidArgument, message)
        })
    }

    /// The native ID in that of a Machine, if it has one: letters, digits and hyphens, so that it cannot lead a URL elsewhere.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: it is one of another cloud, or has other characters.
    pub fn word_of_machine<'a>(&self, machine: &'a Machine) -> Result<Option<&'a str>, DriverError> {
        let Some([id]) = self.of_machine(machine)? else { return Ok(None) };
        if !is_word(id) {
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            let message = format!("machine {name:?} has provider ID {:?}: check its class", machine.spec.provider_id);
            return Err(DriverError::new(Code::InvalidArgument, message));
        }
        Ok(Some(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const IDS: ProviderIds = ProviderIds { provider: "AWS", prefix: "aws:///" };

    #[rstest]
    #[case("aws:///eu-west-1/i-0123", Some(("eu-west-1", "i-0123")))]
    #[case::of_a_cloud_controller("aws:///eu-west-1a/i-0123", Some(("eu-west-1a", "i-0123")))]
    #[case::two_slashes("aws://eu-west-1/i-0123", Some(("eu-west-1", "i-0123")))]
    #[case("aws:///i-0123", None)]
    #[case("aws:///eu-west-1/", None)]
    #[case("gce:///eu-west-1/i-0123", None)]
    #[case("i-0123", None)]
    #[case("", None)]
    fn an_id_is_read_from_its_end(#[case] id: &str, #[case] expected: Option<(&str, &str)>) {
        assert_eq!(IDS.parts(id), expected.map(|(place, native)| [place, native]));
    }

    #[rstest]
    #[case("gce:///p/z/n", Some(["p", "z", "n"]))]
    #[case::of_a_cloud_controller("gce://p/z/n", Some(["p", "z", "n"]))]
    #[case("gce:///z/n", None)]
    #[case("gce:///p//n", None)]
    #[case("aws:///p/z/n", None)]
    fn an_id_may_have_more_parts(#[case] id: &str, #[case] expected: Option<[&str; 3]>) {
        assert_eq!(ProviderIds { provider: "GCP", prefix: "gce:///" }.parts(id), expected);
    }

    proptest! {
        #[test]
        fn both_forms_are_inverse(place in "[a-z0-9-]{1,20}", native in "[a-z0-9-]{1,20}") {
            let id = IDS.node_form(&place, &native);
            prop_assert_eq!(IDS.parts(&id), Some([place.as_str(), native.as_str()]));
        }
    }
}

//! Provider IDs: the cloud's own name of a VM, and the form in which Machines and Nodes hold it.

/// The provider IDs of one cloud: `<prefix><place>/<native>`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProviderIds {
    /// Scheme and slashes, such as `aws:///`.
    pub prefix: &'static str,
}

impl ProviderIds {
    /// The form in which Machines and Nodes hold the ID.
    pub(crate) fn node_form(&self, place: &str, native: &str) -> String {
        format!("{}{place}/{native}", self.prefix)
    }

    /// Place and native ID. `None` if it is no ID of this cloud. Like the reference it takes the last two parts,
    /// whatever is between the scheme and them.
    pub(crate) fn parse<'a>(&self, id: &'a str) -> Option<(&'a str, &'a str)> {
        let scheme = self.prefix.trim_end_matches('/');
        let rest = id.strip_prefix(scheme)?;
        let mut parts = rest.rsplit('/');
        let (native, place) = (parts.next()?, parts.next()?);
        (!native.is_empty() && !place.is_empty()).then_some((place, native))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const IDS: ProviderIds = ProviderIds { prefix: "aws:///" };

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
        assert_eq!(IDS.parse(id), expected);
    }

    proptest! {
        #[test]
        fn both_forms_are_inverse(place in "[a-z0-9-]{1,20}", native in "[a-z0-9-]{1,20}") {
            let id = IDS.node_form(&place, &native);
            prop_assert_eq!(IDS.parse(&id), Some((place.as_str(), native.as_str())));
        }
    }
}

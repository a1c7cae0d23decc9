//! The parts of classes that all clouds share.

use crate::spec::ClassProblems;
use mcm_api::machine::MachineClass;

/// Other names of providers in classes that programs write, with the names of their drivers. Such a program writes its value back, so
/// a user cannot correct it.
const ALIASES: [(&str, &str); 2] = [("kubevirtdriver", "kubevirt"), ("vspheredriver", "vsphere")];

/// The name of the driver that a class means, in lower case. Older classes name a driver and where it listens:
/// `<name>//<address>`.
pub fn driver_of(provider: &str) -> String {
    let name = provider.split_once("//").map_or(provider, |(name, _)| name).trim().to_ascii_lowercase();
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, driver)| (*driver).to_owned())
}

/// Reports a class of another provider. None at all is one of a process with a single driver.
pub fn check_provider(class: &MachineClass, name: &str, problems: &mut ClassProblems) {
    let provider = class.provider.trim();
    if !provider.is_empty() && driver_of(provider) != name.to_ascii_lowercase() {
        problems.expected("provider", name, &format!("{provider:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("kubevirt", "kubevirt")]
    #[case("AWS", "aws")]
    #[case(" vSphere ", "vsphere")]
    #[case::of_an_extension("kubevirtdriver//127.0.0.1:8080", "kubevirt")]
    #[case::of_another_extension("vspheredriver//127.0.0.1:8080", "vsphere")]
    #[case::without_an_address("KubeVirtDriver", "kubevirt")]
    #[case::with_an_address("metal//127.0.0.1:8080", "metal")]
    #[case::of_another_cloud("other", "other")]
    #[case::of_no_driver("//127.0.0.1:8080", "")]
    #[case::none("", "")]
    fn a_provider_names_a_driver(#[case] provider: &str, #[case] expected: &str) {
        assert_eq!(driver_of(provider), expected);
        let class = MachineClass { provider: provider.to_owned(), ..MachineClass::default() };
        for (driver, is_it) in [(expected, true), ("another", provider.is_empty())] {
            let mut problems = ClassProblems::default();
            check_provider(&class, driver, &mut problems);
            assert_eq!(problems.errors.is_empty(), is_it, "{driver}: {:?}", problems.errors);
        }
    }
}

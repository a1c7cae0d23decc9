//! The notices of a release.

use std::{fs, process::Command};

use regex::Regex;

use super::{ROOT, read};

/// Each package of the SBOM has a text, and `deny.toml` allows its licence. `hack/test-release` tests the files of a release.
#[test]
fn each_package_of_the_list_has_a_notice() {
    let tests = format!("{ROOT}/hack/release/notices_tests.py");
    let output = Command::new("python3").args(["-B", &tests]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("Ran 6 tests"), "{said}");
}

#[test]
fn each_package_of_npm_in_a_script_has_a_version() {
    let install = Regex::new(r"(?m)^\s*npm install .* (\S+)$").unwrap();
    let pinned = Regex::new(r"^[a-z@/-]+@\d+\.\d+\.\d+$").unwrap();
    let scripts = fs::read_dir(format!("{ROOT}/hack")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = 0;
    for script in scripts.filter(|path| path.is_file()) {
        let text = fs::read_to_string(&script).unwrap_or_default();
        for package in install.captures_iter(&text) {
            found += 1;
            assert!(pinned.is_match(&package[1]), "{}: {}", script.display(), &package[1]);
        }
    }
    assert!(found > 0);
}

/// Users find whether their version has fixes.
#[test]
fn the_version_of_the_product_is_supported() {
    let (minor, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').unwrap();
    assert!(read("SECURITY.md").contains(&format!("| {minor} | yes |")));
}

use super::*;

/// Returns names and contents, read as the kernel reads them.
fn read(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
    let number = |at: usize| {
        let text = std::str::from_utf8(&bytes[at..at + 8]).unwrap();
        usize::from_str_radix(text, 16).unwrap()
    };
    let (mut at, mut entries) = (0, Vec::new());
    loop {
        assert_eq!(&bytes[at..at + 6], b"070701", "no header at {at}");
        let (size, name_size) = (number(at + 54), number(at + 94));
        let name = at + 110;
        let data = (name + name_size).next_multiple_of(4);
        let text = std::str::from_utf8(&bytes[name..name + name_size - 1]).unwrap().to_owned();
        at = (data + size).next_multiple_of(4);
        if text == "TRAILER!!!" {
            assert_eq!(at, bytes.len());
            return entries;
        }
        entries.push((text, bytes[data..data + size].to_vec()));
    }
}

#[test]
fn cpio_archive_directories_precede_files_sizes_exact() {
    let mut bytes = Vec::new();
    let mut archive = Archive::new(&mut bytes);
    archive.file("lab", b"12345");
    archive.file("lib/x/one", b"1");
    archive.file("lib/x/two", b"");
    archive.end();
    let names: Vec<(String, usize)> =
        read(&bytes).into_iter().map(|(name, content)| (name, content.len())).collect();
    let expected = [("lab", 5), ("lib", 0), ("lib/x", 0), ("lib/x/one", 1), ("lib/x/two", 0)];
    assert_eq!(names, expected.map(|(name, size)| (name.to_owned(), size)));
}

#[test]
fn cpio_archive_after_compressed_starts_four_byte_aligned() {
    for before in 1..9 {
        let mut bytes = vec![0x1f; before];
        Archive::new(&mut bytes).end();
        let at = bytes.windows(6).position(|six| six == b"070701").unwrap();
        assert_eq!(at, before.next_multiple_of(4));
        assert!(bytes[before..at].iter().all(|&byte| byte == 0), "the kernel skips only zeros");
    }
}

#[test]
fn current_executable_libraries_include_libc_and_all_exist() {
    let libraries = libraries(&std::env::current_exe().unwrap()).unwrap();
    assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libc.so")));
    assert!(libraries.iter().all(|path| path.is_file()), "{libraries:?}");
}

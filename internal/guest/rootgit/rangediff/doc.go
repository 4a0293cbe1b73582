// Package rangediff compares the commits of a branch before and after a rebase: unchanged ones, changed ones
// with the reason, and missing ones. It reads only objects in root's own repository. It uses no work tree, no
// configuration and no claim of the program that rebased the commits. To find why a commit changed, it
// rebases the commit once more, without a work tree.
package rangediff

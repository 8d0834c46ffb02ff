// So that a build elsewhere, as a test makes one, is the one that is kept: the default ids are hashes of paths.
module.exports = {
  optimization: { moduleIds: 'named', chunkIds: 'named' },
  resolve: { symlinks: false }
}
